/*
 * The manager library of CIFTS FTB was for its own daemons. Only the types that were visible here are
 * left, for programs that include this header.
 */
#ifndef FTB_MANAGER_LIB_H
#define FTB_MANAGER_LIB_H

#include "ftb_client_lib_defs.h"
#include "ftb_def.h"

#endif
