/* Names parts of a program, for `gable measure -- program`: each call of a region is timed and counted apart. C99 and
 * C++98 or later, with GCC or Clang on Linux; elsewhere regions are empty.
 *
 *   C++                                        C
 *   void sweep() {                             void sweep(void) {
 *     GABLE_REGION("stencil");                   gable_region_begin("stencil");
 *     ...                                        ...
 *   }                                            gable_region_end();
 *                                              }
 *
 * Nothing has to be linked. A program that is not run by gable pays a load and a branch. At its first region it asks
 * the environment for a listener, GABLE_LISTENER, once; `gable measure` sets it. A statically linked program has none.
 * (With a glibc before 2.34, link with -ldl, or there is none either.)
 *
 * Regions nest: one inside another is "outer/inner". Each thread has its own. A name may be any text; it is read at the
 * begin only. GABLE_REGION("stencil", flop, bytes) and gable_region_begin_work() also declare the floating-point
 * operations and the bytes of memory traffic of this call, for the record; 0: not declared. */
#ifndef GABLE_REGION_H
#define GABLE_REGION_H

#if defined(__linux__) && defined(__GNUC__)

#ifdef __cplusplus
/* C has one kind of cast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
extern "C" {
#endif

/* Weak as far as this header is concerned; the program's own uses of them stay as they are. dlopen is found through
 * dlsym, because linkers warn of it in statically linked programs. */
static void* gable_region_dlsym(void*, const char*) __attribute__((weakref("dlsym")));
static char* gable_region_getenv(const char*) __attribute__((weakref("secure_getenv")));
static unsigned long gable_region_getauxval(unsigned long) __attribute__((weakref("getauxval")));

/* Each source file has its own; all ask for the same listener. state: 0 not asked, 1 nobody listens, 2 somebody does.
 */
static struct {
  int state;
  void (*begin)(const char* name, double flop, double bytes);
  void (*end)(void);
} gable_region_listener __attribute__((unused));

/* The address of a function as a pointer to data, since C converts neither into the other. */
__attribute__((unused)) static int gable_region_set(void* function, void* library, const char* name) {
  void* address = gable_region_dlsym(library, name);
  __atomic_store((void**)function, &address, __ATOMIC_RELAXED);
  return address != 0;
}

/* Two threads may come here at once: both find the same. */
__attribute__((unused, noinline, cold)) static int gable_region_find_listener(void) {
  const char* file = gable_region_getenv ? gable_region_getenv("GABLE_LISTENER") : 0;
  void* (*open)(const char*, int) = 0;
  void* library = 0;
  int state = 1;
  /* 7, AT_BASE: where the dynamic loader is; a statically linked program has none and must not load libraries. */
  if (file && *file == '/' && gable_region_dlsym && gable_region_getauxval && gable_region_getauxval(7) &&
      gable_region_set((void*)&open, 0, "dlopen"))
    library = open(file, 2 /* RTLD_NOW */);
  if (library && gable_region_set((void*)&gable_region_listener.begin, library, "gable_listen_begin") &&
      gable_region_set((void*)&gable_region_listener.end, library, "gable_listen_end"))
    state = 2;
  __atomic_store_n(&gable_region_listener.state, state, __ATOMIC_RELEASE);
  return state;
}

static inline int gable_region_heard(void) {
  const int state = __atomic_load_n(&gable_region_listener.state, __ATOMIC_ACQUIRE);
  if (__builtin_expect(state == 1, 1)) return 0;
  return (state ? state : gable_region_find_listener()) == 2;
}

static inline void gable_region_begin_work(const char* name, double flop, double bytes) {
  if (gable_region_heard()) __atomic_load_n(&gable_region_listener.begin, __ATOMIC_RELAXED)(name, flop, bytes);
}

static inline void gable_region_begin(const char* name) { gable_region_begin_work(name, 0, 0); }

/* Ends this thread's innermost region. */
static inline void gable_region_end(void) {
  if (gable_region_heard()) __atomic_load_n(&gable_region_listener.end, __ATOMIC_RELAXED)();
}

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#else

static inline void gable_region_begin_work(const char* name, double flop, double bytes) {
  (void)name, (void)flop, (void)bytes;
}
static inline void gable_region_begin(const char* name) { (void)name; }
static inline void gable_region_end(void) {}

#endif

#ifdef __cplusplus
namespace {

/* From its construction to the end of its scope. */
class GableRegion {
 public:
  explicit GableRegion(const char* name, double flop = 0, double bytes = 0) {
    gable_region_begin_work(name, flop, bytes);
  }
  ~GableRegion() { gable_region_end(); }

 private:
  GableRegion(const GableRegion&);
  GableRegion& operator=(const GableRegion&);
};

}  // namespace

#define GABLE_REGION_JOIN_(a, b) a##b
#define GABLE_REGION_NAME_(number) GABLE_REGION_JOIN_(gable_region_, number)
/* A region from here to the end of the scope: GABLE_REGION("name") or GABLE_REGION("name", flop, bytes). */
#define GABLE_REGION(...) const GableRegion GABLE_REGION_NAME_(__COUNTER__)(__VA_ARGS__)
#endif

#endif
