// Included by sources for nvcc; in the simulator tritmark_cuda.h already has everything.
#pragma once
