/* LD_PRELOAD fault injector for one process (JVM or Python); no root needed.
 *
 * FAULT_MATCH   text in the TARGET path of rename/link, or in the path opened for writing, made or removed
 * FAULT_AT      rename | link | open | unlink | mkdir | write (all of these)      which call
 * FAULT_DO      delay:<ms> | kill_before | kill_after | enospc | eio | count (log and do nothing)
 * FAULT_NTH     fire at the n-th matching call only (default: every one)
 * FAULT_LOG     file that gets one line per matching call: "<n> <call> <path>"
 *
 * The variables are read at each call, so a process may set them for one operation. Renames and links with a folder
 * descriptor (renameat, renameat2, linkat, openat, unlinkat) count as their plain kin: Rust and Java use those.
 * cc -O2 -shared -fPIC -o faultshim.so faultshim.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int hits;

static const char *env(const char *name) {
  const char *value = getenv(name);
  return value ? value : "";
}

/* Through the bare system calls: the wrapped ones must not count this. */
static void note(int n, const char *at, const char *path) {
  const char *log = env("FAULT_LOG");
  if (!*log) return;
  char line[4200];
  int size = snprintf(line, sizeof line, "%d %s %s\n", n, at, path);
  int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0) return;
  if (size > (int)sizeof line) size = sizeof line;
  if (syscall(SYS_write, fd, line, size) < 0) { /* nothing to be done about it */
  }
  syscall(SYS_close, fd);
}

static int match(const char *at, const char *path) {
  const char *wanted = env("FAULT_AT");
  if (!path || !*env("FAULT_MATCH") || !strstr(path, env("FAULT_MATCH"))) return 0;
  if (strcmp(wanted, at) && strcmp(wanted, "write")) return 0;
  int n = __sync_add_and_fetch(&hits, 1), nth = atoi(env("FAULT_NTH"));
  note(n, at, path);
  return nth == 0 || n == nth;
}

/* The whole path of a name inside an open folder, which is how Python's rmtree goes about it. */
static const char *within(int folder, const char *name, char *buffer, size_t size) {
  if (!name || *name == '/' || folder == AT_FDCWD || !*env("FAULT_MATCH")) return name;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
  ssize_t n = readlink(link, buffer, size - 1);
  if (n < 0) return name;
  snprintf(buffer + n, size - n, "/%s", name);
  return buffer;
}

static int before(void) {
  const char *what = env("FAULT_DO");
  if (!strncmp(what, "delay:", 6)) usleep(1000 * atoi(what + 6));
  else if (!strcmp(what, "kill_before")) kill(getpid(), SIGKILL);
  else if (!strcmp(what, "enospc")) { errno = ENOSPC; return -1; }
  else if (!strcmp(what, "eio")) { errno = EIO; return -1; }
  return 0;
}

static void after(void) {
  if (!strcmp(env("FAULT_DO"), "kill_after")) kill(getpid(), SIGKILL);
}

#define NEXT(name) ({ static __typeof__(&name) f; if (!f) f = (__typeof__(&name))dlsym(RTLD_NEXT, #name); f; })
#define AT(folder, name) within(folder, name, (char[4200]){0}, 4200)
#define RUN(at, path, call) \
  int hit = match(at, path); \
  if (hit && before()) return -1; \
  int result = (call); \
  if (hit && result >= 0) { int keep = errno; after(); errno = keep; } \
  return result;

int rename(const char *a, const char *b) { RUN("rename", b, NEXT(rename)(a, b)) }
int renameat(int da, const char *a, int db, const char *b) { RUN("rename", AT(db, b), NEXT(renameat)(da, a, db, b)) }
int renameat2(int da, const char *a, int db, const char *b, unsigned int flags) {
  RUN("rename", AT(db, b), NEXT(renameat2)(da, a, db, b, flags))
}
int link(const char *a, const char *b) { RUN("link", b, NEXT(link)(a, b)) }
int linkat(int da, const char *a, int db, const char *b, int flags) {
  RUN("link", AT(db, b), NEXT(linkat)(da, a, db, b, flags))
}
int unlink(const char *a) { RUN("unlink", a, NEXT(unlink)(a)) }
int unlinkat(int d, const char *a, int flags) { RUN("unlink", AT(d, a), NEXT(unlinkat)(d, a, flags)) }
int rmdir(const char *a) { RUN("unlink", a, NEXT(rmdir)(a)) }
int mkdir(const char *a, mode_t mode) { RUN("mkdir", a, NEXT(mkdir)(a, mode)) }

#define WRITES (O_WRONLY | O_RDWR | O_CREAT)
#define MODE(flags) \
  mode_t mode = 0; \
  if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, int); va_end(rest); }

int open(const char *p, int flags, ...) {
  MODE(flags)
  RUN("open", (flags & WRITES) ? p : NULL, NEXT(open)(p, flags, mode))
}
int open64(const char *p, int flags, ...) {
  MODE(flags)
  RUN("open", (flags & WRITES) ? p : NULL, NEXT(open64)(p, flags, mode))
}
int openat(int d, const char *p, int flags, ...) {
  MODE(flags)
  RUN("open", (flags & WRITES) ? AT(d, p) : NULL, NEXT(openat)(d, p, flags, mode))
}
int openat64(int d, const char *p, int flags, ...) {
  MODE(flags)
  RUN("open", (flags & WRITES) ? AT(d, p) : NULL, NEXT(openat64)(d, p, flags, mode))
}
