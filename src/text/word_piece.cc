#include "text/word_piece.h"

#include "text/unicode.h"

namespace pelton::text {
namespace {

class WordPieceModel : public Model {
 public:
  WordPieceModel(const Vocabulary& vocabulary, WordPieceOptions options)
      : vocabulary_(vocabulary), options_(std::move(options)) {}

  void encode(std::string_view piece, ModelScratch* scratch,
              std::vector<int32_t>* out) const override {
    int64_t chars = 0;
    for (size_t pos = 0; pos < piece.size(); pos += char_at(piece, pos).length) {
      ++scratch->steps;
      if (++chars > options_.max_input_chars_per_word) return out->push_back(options_.unk_id);
    }
    const size_t before = out->size();
    for (size_t begin = 0; begin < piece.size();) {
      const int32_t id = longest(piece, &begin, scratch);
      if (id < 0) {
        out->resize(before);
        return out->push_back(options_.unk_id);
      }
      out->push_back(id);
    }
  }

 private:
  // The longest token at *begin, which moves past it; -1 for none.
  int32_t longest(std::string_view piece, size_t* begin, ModelScratch* scratch) const {
    std::string text = *begin > 0 ? options_.continuing_subword_prefix : std::string();
    text.append(piece.substr(*begin));
    for (size_t end = piece.size(); end > *begin;) {
      ++scratch->steps;
      const int32_t id = vocabulary_.find_text(text);
      if (id >= 0) {
        *begin = end;
        return id;
      }
      const size_t last = char_before(piece, end).length;
      end -= last;
      text.resize(text.size() - last);
    }
    return -1;
  }

  const Vocabulary& vocabulary_;
  WordPieceOptions options_;
};

class WordLevelModel : public Model {
 public:
  WordLevelModel(const Vocabulary& vocabulary, int32_t unk_id)
      : vocabulary_(vocabulary), unk_id_(unk_id) {}
  void encode(std::string_view piece, ModelScratch* scratch,
              std::vector<int32_t>* out) const override {
    ++scratch->steps;
    const int32_t id = vocabulary_.find_text(piece);
    out->push_back(id >= 0 ? id : unk_id_);
  }

 private:
  const Vocabulary& vocabulary_;
  int32_t unk_id_;
};

}  // namespace

std::unique_ptr<Model> word_piece_model(const Vocabulary& vocabulary, WordPieceOptions options) {
  return std::make_unique<WordPieceModel>(vocabulary, std::move(options));
}
std::unique_ptr<Model> word_level_model(const Vocabulary& vocabulary, int32_t unk_id) {
  return std::make_unique<WordLevelModel>(vocabulary, unk_id);
}

}  // namespace pelton::text
