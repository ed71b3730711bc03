/* What stands before every call, for shim.c and shim_llama.c. */
#ifndef DORMOUSE_SHIM_H
#define DORMOUSE_SHIM_H

#include "dormouse.h"

/* This thread's last error. */
dormouse_error *dormouse_shim_last(void);
/* Answers in place of Go where Go cannot. */
dormouse_status dormouse_shim_enter(void);

#define LAST() dormouse_shim_last()
#define ENTER() do { dormouse_status entered = dormouse_shim_enter(); if (entered != DORMOUSE_OK) return entered; } while (0)

#endif
