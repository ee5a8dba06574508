#include "base/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace pelton {

size_t anonymous_resident_bytes() {
  // Size, resident, shared (file-backed and shared-memory) pages. Read without allocating: this is
  // called between steps.
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[256];
  const ssize_t got = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  if (got <= 0) return 0;
  text[got] = '\0';
  char* at = text;
  std::strtoull(at, &at, 10);
  const size_t resident = std::strtoull(at, &at, 10);
  const size_t shared = std::strtoull(at, &at, 10);
  return resident > shared ? (resident - shared) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace pelton
