// SentencePiece models: a protobuf message (sentencepiece_model.proto) read field by field.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "text/model_file.h"
#include "text/tokenizer_config.h"

namespace pelton::text {
namespace {

// One protobuf field: a number (varint or fixed) or bytes.
struct Field {
  uint32_t tag = 0;
  uint32_t wire = 0;
  uint64_t number = 0;
  std::string_view bytes;
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view data) : data_(data) {}

  bool done() const { return data_.empty(); }
  Result<Field> next() {
    uint64_t key = 0;
    Field field;
    if (!varint(&key)) return broken();
    field.tag = static_cast<uint32_t>(key >> 3);
    field.wire = static_cast<uint32_t>(key & 7);
    if (field.tag == 0 || key >> 3 > UINT32_MAX) return broken();
    if (field.wire == 0) {
      if (!varint(&field.number)) return broken();
    } else if (field.wire == 2) {
      uint64_t size = 0;
      if (!varint(&size) || size > data_.size()) return broken();
      field.bytes = data_.substr(0, size);
      data_.remove_prefix(size);
    } else if (field.wire == 1 || field.wire == 5) {
      const size_t size = field.wire == 1 ? 8 : 4;
      if (data_.size() < size) return broken();
      std::memcpy(&field.number, data_.data(), size);
      data_.remove_prefix(size);
    } else {
      return broken();
    }
    return field;
  }

 private:
  static Status broken() { return data_loss("not a SentencePiece model: broken message"); }

  bool varint(uint64_t* out) {
    *out = 0;
    for (int shift = 0; shift < 64 && !data_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(data_.front());
      data_.remove_prefix(1);
      *out |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view data_;
};

struct Settings {
  uint64_t model_type = 1;
  int64_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;
  bool whitespace_suffix = false;
};

template <typename Handle>
Status each_field(std::string_view message, Handle handle) {
  ProtoReader reader(message);
  while (!reader.done()) {
    auto field = reader.next();
    if (!field.ok()) return field.status();
    if (Status s = handle(*field); !s.ok()) return s;
  }
  return {};
}

Status read_piece(std::string_view message, GgufVocabulary* out) {
  std::string piece;
  float score = 0.0f;
  int64_t type = 1;
  Status s = each_field(message, [&](const Field& field) -> Status {
    if (field.tag == 1 && field.wire == 2) piece = std::string(field.bytes);
    if (field.tag == 2 && field.wire == 5) {
      score = std::bit_cast<float>(static_cast<uint32_t>(field.number));
    }
    if (field.tag == 3 && field.wire == 0) type = static_cast<int64_t>(field.number);
    return {};
  });
  if (!s.ok()) return s;
  if (out->tokens.size() >= static_cast<size_t>(kMaxVocabulary)) {
    return data_loss("more pieces than a vocabulary may have");
  }
  out->tokens.push_back(std::move(piece));
  out->scores.push_back(score);
  out->token_types.push_back(type);
  return {};
}

Status read_trainer(std::string_view message, Settings* out) {
  return each_field(message, [&](const Field& field) -> Status {
    if (field.wire != 0) return {};
    const auto id = static_cast<int32_t>(field.number);
    if (field.tag == 3) out->model_type = field.number;
    if (field.tag == 24) out->whitespace_suffix = field.number != 0;
    if (field.tag == 40) out->unk_id = id;
    if (field.tag == 41) out->bos_id = id;
    if (field.tag == 42) out->eos_id = id;
    if (field.tag == 43) out->pad_id = id;
    return {};
  });
}

Status read_normalizer_spec(std::string_view message, GgufVocabulary* out) {
  return each_field(message, [&](const Field& field) -> Status {
    if (field.tag == 2 && field.wire == 2) out->precompiled_charsmap = std::string(field.bytes);
    if (field.wire != 0) return {};
    if (field.tag == 3) out->add_space_prefix = field.number != 0;
    if (field.tag == 4) out->remove_extra_whitespaces = field.number != 0;
    if (field.tag == 5 && field.number == 0) {
      return unsupported("normalizer_spec.escape_whitespaces: false is not supported");
    }
    return {};
  });
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> from_sentencepiece(std::string_view content,
                                                            std::string_view config) {
  GgufVocabulary vocabulary;
  vocabulary.remove_extra_whitespaces = true;
  Settings settings;
  Status s = each_field(content, [&](const Field& field) -> Status {
    if (field.wire != 2) return {};
    if (field.tag == 1) return read_piece(field.bytes, &vocabulary);
    if (field.tag == 2) return read_trainer(field.bytes, &settings);
    if (field.tag == 3) return read_normalizer_spec(field.bytes, &vocabulary);
    return {};
  });
  if (!s.ok()) return s;
  if (settings.model_type != 1 && settings.model_type != 2) {
    return unsupported(
        fmt::format("trainer_spec.model_type: {} is neither unigram nor BPE", settings.model_type));
  }
  if (settings.whitespace_suffix) {
    return unsupported("trainer_spec.treat_whitespace_as_suffix is not supported");
  }
  vocabulary.model = settings.model_type == 1 ? "t5" : "llama";
  const auto id = [](int64_t value) {
    return value >= 0 ? std::optional<int64_t>(value) : std::nullopt;
  };
  vocabulary.unknown_id = id(settings.unk_id);
  vocabulary.bos_id = id(settings.bos_id);
  vocabulary.eos_id = id(settings.eos_id);
  vocabulary.padding_id = id(settings.pad_id);
  auto parts = parts_from_sentencepiece(std::move(vocabulary));
  if (!parts.ok()) return parts.status();
  if (s = apply_tokenizer_config(config, true, &*parts); !s.ok()) return s;
  return make_pipeline(std::move(*parts));
}

}  // namespace pelton::text
