#define GROUP 128 /* weights that share a scale */
#include "row16_grouped.h"
