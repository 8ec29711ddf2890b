#define GROUP 64 /* weights that share a scale */
#include "row16_grouped.h"
