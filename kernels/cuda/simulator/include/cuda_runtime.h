// Included by sources for nvcc; the simulator has all of it in tritmark_cuda.h already.
#pragma once
