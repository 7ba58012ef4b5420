/* The name of libftb.h in later versions of CIFTS FTB. */
#ifndef FTB_H
#define FTB_H

#include "libftb.h"

#endif
