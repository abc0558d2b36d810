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
#include <stdint.h>

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
 As weir_phase_begin(), and says how many bytes this process will move in the phase; 0 if that is not known. The
 coordinator takes the sum over all processes for the size of the phase, so one of them may say it for all, if the others say 0.
 A process that moves more than it said is not held back for it: what it said counts no more.
 */
int weir_phase_begin_sized(const char *name, uint64_t bytes);

/*
 Says what the I/O phases of this program will be like: `period_s` seconds from the beginning of one to the beginning of
 the next, as if no other job did I/O, and `bytes` that this process moves in one (as with weir_phase_begin_sized(): one
 process may say it for all). 0 where that is not known: then it is learnt. What is said here counts until something else is
 said, and above WEIR_PERIOD. Returns 0, or -1 when nothing is being measured or `period_s` is no time.
 */
int weir_expect(double period_s, uint64_t bytes);

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
 Share of its storage that this job has now, from 0 to 1: 1 while no other job limits it, 0 while it has no turn. Of several storages,
 the smallest. Negative when nobody coordinates the job, and before its first I/O of some size.
 */
double weir_share(void);

/*
 Seconds until this job should be able to go on, as its coordinator has said last; 0 if it may go, if that cannot be told,
 and if the time has passed already. While the job has to wait, weir_share() is 0.
 */
double weir_expected_wait(void);

/*
 Seconds that this process spent in its latest collective call on the file on neither storage nor waiting for its turn:
 for exchanging data with other processes, and for waiting for them. After very many calls it is the latest that the
 profile has listed. `file` is the MPI_File. Negative when there was none.
 */
double weir_shuffle_cost(void *file);

/*
 Seconds by which this process could have been later in its latest collective call on the file without making the call
 longer: by how much weir_shuffle_cost() is longer than in the shortest call alike (the same function and bytes), which is what
 it waited for others. An estimate of this process alone; the profile compares all processes. Negative when there were fewer
 than two such calls.
 */
double weir_acceptable_delay(void *file);

/*
 How many aggregators and stripes the coordinator has given to the file when it was created (WEIR_HINTS=on), 0 where it had no
 opinion. `file` is the MPI_File; either pointer may be NULL. Returns 0, or -1 when nothing was given: then both are 0.
 */
int weir_allocation(void *file, int *aggregators, int *stripes);

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

static inline int weir_phase_begin_sized(const char *name, uint64_t bytes)
{
    int (*f)(const char *, uint64_t);
    return weir_find_("weir_phase_begin_sized", &f) ? f(name, bytes) : -1;
}

static inline int weir_expect(double period_s, uint64_t bytes)
{
    int (*f)(double, uint64_t);
    return weir_find_("weir_expect", &f) ? f(period_s, bytes) : -1;
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

static inline double weir_share(void)
{
    double (*f)(void);
    return weir_find_("weir_share", &f) ? f() : -1.0;
}

static inline double weir_expected_wait(void)
{
    double (*f)(void);
    return weir_find_("weir_expected_wait", &f) ? f() : 0.0;
}

static inline double weir_shuffle_cost(void *file)
{
    double (*f)(void *);
    return weir_find_("weir_shuffle_cost", &f) ? f(file) : -1.0;
}

static inline double weir_acceptable_delay(void *file)
{
    double (*f)(void *);
    return weir_find_("weir_acceptable_delay", &f) ? f(file) : -1.0;
}

static inline int weir_allocation(void *file, int *aggregators, int *stripes)
{
    int (*f)(void *, int *, int *);
    if (weir_find_("weir_allocation", &f))
        return f(file, aggregators, stripes);
    if (aggregators)
        *aggregators = 0;
    if (stripes)
        *stripes = 0;
    return -1;
}

static inline int weir_flush(void)
{
    int (*f)(void);
    return weir_find_("weir_flush", &f) ? f() : -1;
}

#endif /* WEIR_INLINE */

#endif /* WEIR_H */
