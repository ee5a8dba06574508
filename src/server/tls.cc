#include "server/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <limits>

#include "base/file.h"

namespace pelton::server {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

constexpr uint64_t kMaxPem = 1u << 20;

int as_int(size_t size) {
  return static_cast<int>(std::min<size_t>(size, std::numeric_limits<int>::max()));
}

// The first of the errors that the library noted, in its words; the others are forgotten.
std::string reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "it cannot be used" : text;
}

Status bad_file(std::string_view option, const std::string& file, std::string_view what) {
  std::string message(option);
  message += ": ";
  message += file;
  message += ": ";
  message += what;
  return invalid_argument(std::move(message));
}

// A key with a passphrase must not make the program ask for it on a terminal.
int no_passphrase(char*, int, int, void*) { return 0; }

class Connection final : public TlsConnection {
 public:
  // Takes both.
  Connection(SSL* ssl, BIO* in, BIO* out) : ssl_(ssl), in_(in), out_(out) {
    SSL_set_bio(ssl, in, out);
    SSL_set_accept_state(ssl);
  }

  State handshake() override {
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_.get());
    if (done == 1) return State::kOpen;
    const int error = SSL_get_error(ssl_.get(), done);
    ERR_clear_error();
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? State::kGoesOn
                                                                         : State::kFailed;
  }

  bool put(std::string_view ciphertext) override {
    return BIO_write(in_, ciphertext.data(), as_int(ciphertext.size())) ==
           static_cast<int>(ciphertext.size());
  }

  size_t read(char* out, size_t size) override {
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), out, as_int(size));
    if (got > 0) return static_cast<size_t>(got);
    const int error = SSL_get_error(ssl_.get(), got);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) ended_ = true;
    ERR_clear_error();
    return 0;
  }

  bool ended() const override { return ended_; }

  bool write(std::string_view plaintext) override {
    while (!plaintext.empty()) {
      ERR_clear_error();
      const int put = SSL_write(ssl_.get(), plaintext.data(), as_int(plaintext.size()));
      if (put <= 0) {
        ERR_clear_error();
        return false;
      }
      plaintext.remove_prefix(static_cast<size_t>(put));
    }
    return true;
  }

  void finish() override {
    SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

  std::string take_output() override {
    std::string bytes(BIO_ctrl_pending(out_), '\0');
    const int got = bytes.empty() ? 0 : BIO_read(out_, bytes.data(), as_int(bytes.size()));
    bytes.resize(static_cast<size_t>(std::max(0, got)));
    return bytes;
  }

 private:
  std::unique_ptr<SSL, Free> ssl_;
  BIO* in_;   // ssl_'s
  BIO* out_;  // ssl_'s
  bool ended_ = false;
};

class Context final : public TlsContext {
 public:
  explicit Context(std::unique_ptr<SSL_CTX, Free> context) : context_(std::move(context)) {}

  std::unique_ptr<TlsConnection> accept() const override {
    SSL* ssl = SSL_new(context_.get());
    BIO* in = BIO_new(BIO_s_mem());
    BIO* out = BIO_new(BIO_s_mem());
    if (ssl == nullptr || in == nullptr || out == nullptr) {
      SSL_free(ssl);
      BIO_free(in);
      BIO_free(out);
      return nullptr;
    }
    return std::make_unique<Connection>(ssl, in, out);
  }

 private:
  std::unique_ptr<SSL_CTX, Free> context_;
};

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::load(const std::string& certificate_file,
                                                     const std::string& key_file) {
  // Read once by hand: the library's own words for a file that is not there are of no use.
  if (auto text = read_file(certificate_file, kMaxPem); !text.ok())
    return text.status().with_context("--ssl-certfile");
  if (auto text = read_file(key_file, kMaxPem); !text.ok())
    return text.status().with_context("--ssl-keyfile");
  std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_server_method()));
  if (!context) return resource_exhausted("no memory for TLS");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                         SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  // Idle connections keep no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context.get(), no_passphrase);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file.c_str()) != 1)
    return bad_file("--ssl-certfile", certificate_file, reason());
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1)
    return bad_file("--ssl-keyfile", key_file, reason());
  if (SSL_CTX_check_private_key(context.get()) != 1)
    return bad_file("--ssl-keyfile", key_file, "it does not belong to the certificate");
  return std::unique_ptr<TlsContext>(std::make_unique<Context>(std::move(context)));
}

}  // namespace pelton::server
