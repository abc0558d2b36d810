/* Weir: what a program that knows of it can say and ask.
 *
 * Link with -lweir, or run under LD_PRELOAD=libweir.so. A program that should also build and run where
 * there is no Weir defines WEIR_INLINE before including this file: the functions are then looked up when
 * they are called and do nothing if there is no library. (With a C library older than glibc 2.34 that
 * needs -ldl.) */

#ifndef WEIR_H
#define WEIR_H

/* Made by cbindgen from src/capi.rs: do not edit. */

#include <stddef.h>

#ifndef WEIR_INLINE


#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Version of the library, such as "0.1.0".
 */
const char *weir_version(void);

/*
 Whether Weir is measuring this process now: 1 or 0.
 */
int weir_active(void);

/*
 Says that an I/O phase begins. All I/O of this process up to weir_phase_end() belongs to it,
 whatever pauses there are. Marks do not nest: another weir_phase_begin() before that ends the phase and begins the
 next, and one weir_phase_end() ends that; what follows is in neither. `name` stands in the profile, the last 48 bytes of it and up to 31 different
 ones; it may be NULL. Returns 0, or -1 when nothing is being measured.
 */
int weir_phase_begin(const char *name);

/*
 Says that the I/O phase ends. Returns 0, or -1 when nothing is being measured.
 */
int weir_phase_end(void);

/*
 Names the application in the profile. Returns 0, or -1 when nothing is being measured or the name
 is NULL or empty.
 */
int weir_set_application(const char *name);

/*
 Mean time in seconds between the starts of this process's I/O phases so far; negative when there
 were fewer than two.
 */
double weir_characteristic_time(void);

/*
 Share of this process's time so far that was I/O, from 0 to 1; negative when nothing is measured.
 */
double weir_io_ratio(void);

/*
 Brings the record on disk up to date, so that `weir report` shows this process as it is now.
 Returns 0, or -1 when there is no record.
 */
int weir_flush(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#else /* WEIR_INLINE */

#include <dlfcn.h>
#include <string.h>

/* Copies the address of a function of the library into *function; 0 if there is none. A null handle asks
 * in all that is loaded: RTLD_DEFAULT, which is declared with _GNU_SOURCE only. */
static inline int weir_find_(const char *name, void *function)
{
    void *address = dlsym((void *)0, name);
    memcpy(function, &address, sizeof address);
    return address != 0;
}

static inline const char *weir_version(void)
{
    const char *(*f)(void);
    return weir_find_("weir_version", &f) ? f() : "";
}

static inline int weir_active(void)
{
    int (*f)(void);
    return weir_find_("weir_active", &f) ? f() : 0;
}

static inline int weir_phase_begin(const char *name)
{
    int (*f)(const char *);
    return weir_find_("weir_phase_begin", &f) ? f(name) : -1;
}

static inline int weir_phase_end(void)
{
    int (*f)(void);
    return weir_find_("weir_phase_end", &f) ? f() : -1;
}

static inline int weir_set_application(const char *name)
{
    int (*f)(const char *);
    return weir_find_("weir_set_application", &f) ? f(name) : -1;
}

static inline double weir_characteristic_time(void)
{
    double (*f)(void);
    return weir_find_("weir_characteristic_time", &f) ? f() : -1.0;
}

static inline double weir_io_ratio(void)
{
    double (*f)(void);
    return weir_find_("weir_io_ratio", &f) ? f() : -1.0;
}

static inline int weir_flush(void)
{
    int (*f)(void);
    return weir_find_("weir_flush", &f) ? f() : -1;
}

#endif /* WEIR_INLINE */

#endif /* WEIR_H */
