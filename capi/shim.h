/* What stands before every call, for shim.c and shim_llama.c. */
#ifndef DORMOUSE_SHIM_H
#define DORMOUSE_SHIM_H

#include "dormouse.h"

/* This thread's last error. */
dormouse_error *dormouse_shim_last(void);
/* Answers in place of Go where Go cannot. */
dormouse_status dormouse_shim_enter(void);

/* The processor's floating-point control: MXCSR, FPCR. Go computes with the default one, and a trap, another rounding or no subnormals, as the host may have set them, would end a
 * call, or change what is stored. */
#if defined(__x86_64__)
#include <xmmintrin.h>
typedef unsigned int dormouse_fp;
#define FP_DEFAULT 0x1f80u
static inline dormouse_fp fp_get(void) { return _mm_getcsr(); }
static inline void fp_set(dormouse_fp fp) { _mm_setcsr(fp); }
#elif defined(__aarch64__)
typedef uint64_t dormouse_fp;
#define FP_DEFAULT 0
static inline dormouse_fp fp_get(void) {
	dormouse_fp fp;
	__asm__ volatile("mrs %0, fpcr" : "=r"(fp));
	return fp;
}
static inline void fp_set(dormouse_fp fp) { __asm__ volatile("msr fpcr, %0" : : "r"(fp) : "memory"); }
#else
typedef int dormouse_fp;
#define FP_DEFAULT 0
static inline dormouse_fp fp_get(void) { return FP_DEFAULT; }
static inline void fp_set(dormouse_fp fp) { (void)fp; }
#endif

/* Sets the default control for a call, and the host's when it is over. */
int dormouse_shim_calm(void);
void dormouse_shim_leave(int *entered);
/* Around a callback, in which the host's control is in force. */
void dormouse_shim_out(void);
void dormouse_shim_back(void);

#define LAST() dormouse_shim_last()
#define ENTER() \
	dormouse_status entered = dormouse_shim_enter(); \
	if (entered != DORMOUSE_OK) return entered; \
	__attribute__((cleanup(dormouse_shim_leave), unused)) int calm = dormouse_shim_calm()

#endif
