#define GROUP 256 /* weights that share a scale */
#include "row16_grouped.h"
