#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

namespace pelton {
namespace {

constexpr size_t kMaxMappings = 4096;

// Ranges that the SIGBUS handler may patch. Fixed and lock-free: a signal handler reads it.
struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
};
std::array<Range, kMaxMappings> g_ranges;
std::atomic<bool> g_truncated{false};
struct sigaction g_previous;

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Range& range : g_ranges) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= range.end.load(std::memory_order_acquire))
      continue;
    const uintptr_t page = address & ~uintptr_t{4095};
    void* patched = mmap(reinterpret_cast<void*>(page), 4096, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (patched == MAP_FAILED) break;
    g_truncated.store(true);
    return;
  }
  // Not ours: whoever was there before decides.
  if ((g_previous.sa_flags & SA_SIGINFO) != 0 && g_previous.sa_sigaction != nullptr) {
    g_previous.sa_sigaction(signal, info, context);
    return;
  }
  sigaction(SIGBUS, &g_previous, nullptr);
  raise(signal);
}

void install_handler_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &g_previous);
  });
}

bool register_range(uintptr_t begin, uintptr_t end) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  for (Range& range : g_ranges) {
    if (range.begin.load() != 0) continue;
    range.end.store(end, std::memory_order_release);
    range.begin.store(begin, std::memory_order_release);
    return true;
  }
  return false;
}

void unregister_range(uintptr_t begin) {
  for (Range& range : g_ranges) {
    if (range.begin.load() == begin) range.begin.store(0, std::memory_order_release);
  }
}

// A descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status errno_status(const std::string& path, std::string_view what) {
  const int code = errno;
  const std::string message = fmt::format("{}: {}: {}", path, what, std::strerror(code));
  return code == ENOENT ? not_found(message) : io_error(message);
}

Result<uint64_t> regular_file_size(int fd, const std::string& path, int64_t* modified = nullptr) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return errno_status(path, "cannot read its size");
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + ": not a regular file");
  if (modified != nullptr)
    *modified = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  install_handler_once();
  const std::string name = path.string();
  const Fd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return errno_status(name, "cannot open");
  std::shared_ptr<MappedFile> file(new MappedFile());
  const auto size = regular_file_size(fd.get(), name, &file->modified_);
  if (!size.ok()) return size.status();
  file->path_ = name;
  if (*size == 0) return std::shared_ptr<const MappedFile>(std::move(file));
  void* data = mmap(nullptr, *size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return errno_status(name, "cannot map");
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (!register_range(begin, begin + ((*size + 4095) & ~uint64_t{4095}))) {
    munmap(data, *size);
    return resource_exhausted(name + ": too many mapped files");
  }
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = *size;
  file->fd_ = fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (fd_ >= 0) ::close(fd_);
  if (data_ == nullptr) return;
  unregister_range(reinterpret_cast<uintptr_t>(data_));
  munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  // Only whole pages inside the part: its neighbours may still be wanted.
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(part.data()) + 4095) & ~uintptr_t{4095};
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data() + part.size()) & ~uintptr_t{4095};
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void MappedFile::copy(size_t begin, std::span<std::byte> out) const {
  size_t done = 0;
  while (fd_ >= 0 && done < out.size()) {
    const ssize_t got =
        pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  // Where that is not possible the mapping says what there is, or that it is gone.
  if (done < out.size()) std::memcpy(out.data() + done, data_ + begin + done, out.size() - done);
}

void MappedFile::read_ahead(size_t begin, size_t bytes) const {
  constexpr size_t kPage = 4096;
  begin = begin / kPage * kPage;
  if (begin >= size_) return;
  bytes = std::min(bytes, size_ - begin);
  if (bytes == 0) return;
  void* at = const_cast<std::byte*>(data_ + begin);
  void* last = const_cast<std::byte*>(data_ + (begin + bytes - 1) / kPage * kPage);
  // Where both ends are in memory so is what lies between, and the system need not look at every
  // page.
  unsigned char first_is_here = 0;
  unsigned char last_is_here = 0;
  if (mincore(at, 1, &first_is_here) == 0 && mincore(last, 1, &last_is_here) == 0 &&
      (first_is_here & last_is_here & 1) != 0) {
    return;
  }
  madvise(at, bytes, MADV_WILLNEED);
}

bool truncated_while_mapped() { return g_truncated.load(std::memory_order_relaxed); }

Result<std::string> read_file(const std::filesystem::path& path, uint64_t limit) {
  const std::string name = path.string();
  const Fd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return errno_status(name, "cannot open");
  const auto size = regular_file_size(fd.get(), name);
  if (!size.ok()) return size.status();
  if (*size > limit) {
    return data_loss(
        fmt::format("{}: {} bytes, more than the limit of {} bytes", name, *size, limit));
  }
  std::string content(*size, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_status(name, "cannot read");
    if (got == 0) return data_loss(name + ": became shorter while it was read");
    done += static_cast<size_t>(got);
  }
  return content;
}

Result<std::unique_ptr<FileWriter>> FileWriter::create(const std::filesystem::path& path) {
  // Renaming would put a file in the place of a device, a pipe or a link.
  std::error_code ignored;
  const auto there = std::filesystem::symlink_status(path, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    return invalid_argument(path.string() + ": exists and is not a regular file");
  }
  std::unique_ptr<FileWriter> writer(new FileWriter());
  writer->path_ = path.string();
  writer->temporary_ = writer->path_ + ".XXXXXX";
  writer->fd_ = mkstemp(writer->temporary_.data());
  if (writer->fd_ < 0) return errno_status(writer->path_, "cannot create a file beside it");
  return writer;
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status FileWriter::append(std::string_view content) {
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t put = ::write(fd_, content.data() + done, content.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_status(path_, "cannot write");
    done += static_cast<size_t>(put);
  }
  return {};
}

Status FileWriter::commit() {
  if (fchmod(fd_, 0644) != 0) return errno_status(path_, "cannot set its mode");
  if (fsync(fd_) != 0) return errno_status(path_, "cannot sync");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return errno_status(path_, "cannot rename");
  ::close(fd_);
  fd_ = -1;
  return {};
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  auto writer = FileWriter::create(path);
  if (!writer.ok()) return writer.status();
  if (Status s = (*writer)->append(content); !s.ok()) return s;
  return (*writer)->commit();
}

}  // namespace pelton
