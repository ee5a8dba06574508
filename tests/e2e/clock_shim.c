/* Preloaded: the wall clock of one process, moved by as many seconds as the file CLOCK_OFFSET says now. Clocks that do not jump
   stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t* offset;

__attribute__((constructor)) static void open_offset(void) {
  const char* path = getenv("CLOCK_OFFSET");
  const int file = path == NULL ? -1 : open(path, O_RDONLY);
  if (file < 0) _exit(99);
  offset = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (offset == MAP_FAILED) _exit(99);
}

int clock_gettime(clockid_t clock, struct timespec* out) {
  const int failed = (int)syscall(SYS_clock_gettime, clock, out);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) out->tv_sec += offset ? *offset : 0;
  return failed;
}

int gettimeofday(struct timeval* restrict out, void* restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
