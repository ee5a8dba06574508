// Bases of the parsers: text that cannot be decided yet, markers that may arrive in pieces.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "text/output/call_reader.h"
#include "text/output/output_parser.h"

namespace pelton::text {

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// White space that a parser holds back at most until it knows what follows.
constexpr size_t kMaxHeldSpace = 64;

struct MarkerHit {
  size_t begin = std::string_view::npos;  // npos: none
  size_t which = 0;
};
// The first marker in `text`.
MarkerHit find_marker(std::string_view text, std::span<const std::string_view> markers);
// Length of the longest end of `text` that is the proper beginning of a marker.
size_t held_suffix(std::string_view text, std::span<const std::string_view> markers);
// White space at the end of `text`, kMaxHeldSpace at most.
size_t trailing_space(std::string_view text);

void append_piece(OutputPiece::Kind kind, int32_t call, std::string_view text, OutputPieces* out);

class BufferedParser : public OutputParser {
 public:
  void feed(std::string_view text, OutputPieces* out) final;
  void finish(OutputPieces* out) final;

 protected:
  // Consumes what can be decided of rest(); false when it needs more text. With at_end() there is
  // no more: everything must be consumed.
  virtual bool step(OutputPieces* out) = 0;

  std::string_view rest() const { return std::string_view(pending_).substr(used_); }
  void consume(size_t bytes) { used_ += bytes; }
  bool at_end() const { return at_end_; }
  // Consumes leading white space; true when something else follows.
  bool skip_space();
  enum class Match { kYes, kNo, kMore };
  // Whether rest() begins with `marker`; consumes it if so.
  Match take(std::string_view marker);
  // Gives out `kind` up to the first marker and consumes that: true. Without white space before it.
  bool pass_until(std::span<const std::string_view> markers, OutputPiece::Kind kind, size_t* which,
                  OutputPieces* out);
  // Drops text up to the first marker, which stays: true.
  bool drop_until(std::span<const std::string_view> markers);

  bool trim_ = false;  // white space at the beginning of what pass_until() gives out is dropped

 private:
  void run(OutputPieces* out);

  std::string pending_;
  size_t used_ = 0;
  bool at_end_ = false;
};

class CallParser : public BufferedParser {
 public:
  explicit CallParser(OutputOptions options) : options_(std::move(options)) {}

 protected:
  bool is_tool(std::string_view name) const;
  void begin_call(std::string_view name, OutputPieces* out);
  void arguments(std::string_view json, OutputPieces* out);
  void content(std::string_view text, OutputPieces* out);
  // Whether a call may have this name; read_call() stops before one that may not.
  virtual bool accepts(std::string_view) const { return true; }
  // Runs `reader` over rest() and gives out what it found.
  CallReader::State read_call(CallReader& reader, OutputPieces* out);

  const OutputOptions options_;

 private:
  int32_t calls_ = 0;
};

std::unique_ptr<OutputParser> make_hermes_parser(OutputOptions options);
std::unique_ptr<OutputParser> make_llama_json_parser(OutputOptions options);
std::unique_ptr<OutputParser> make_mistral_parser(OutputOptions options);
std::unique_ptr<OutputParser> make_deepseek_parser(OutputOptions options);
std::unique_ptr<OutputParser> make_pythonic_parser(OutputOptions options);
// Reasoning is told apart, the rest goes to `next`, which may be null.
std::unique_ptr<OutputParser> make_reasoning_parser(const OutputOptions& options,
                                                    std::unique_ptr<OutputParser> next);

}  // namespace pelton::text
