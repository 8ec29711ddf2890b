#define GROUP 32 /* weights that share a scale */
#include "row16_grouped.h"
