#include "cli/tokenize.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "engine/chat.h"

namespace pelton::cli {
namespace {

// Templates read a message's role and content without asking: what is not a message would render as
// an empty one.
Status check_messages(const Json& messages, const std::string& path) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return invalid_argument(fmt::format("{}: message {} has no role", path, i));
  }
  return {};
}

Result<engine::ChatFormatter::Conversation> parse_chat(const std::string& text,
                                                       const std::string& path) {
  auto parsed = Json::parse(text);
  if (!parsed.ok()) return parsed.status().with_context(path);
  Json& value = *parsed;
  engine::ChatFormatter::Conversation conversation;
  if (value.is_array()) {
    conversation.messages = std::move(value);
    return conversation;
  }
  if (!value.is_object() || !value.contains("messages") || !value["messages"].is_array()) {
    return invalid_argument(path + ": neither a list of messages nor an object with 'messages'");
  }
  for (auto& [key, item] : value.items()) {
    if (key == "messages") {
      conversation.messages = item;
    } else if (key == "tools") {
      conversation.tools = item;
    } else if (key == "add_generation_prompt") {
      if (!item.is_boolean())
        return invalid_argument(path + ": 'add_generation_prompt' is not true or false");
      conversation.add_generation_prompt = item.as_bool();
    } else {
      conversation.extra[key] = item;
    }
  }
  return conversation;
}

// A piece in a table: line ends, tabs and other control characters as a programmer writes them.
std::string one_line(std::string_view piece) {
  std::string out;
  for (const char c : piece) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return printable(out);
}

Result<std::vector<int32_t>> chat_ids(const TokenizeOptions& options,
                                      const engine::ModelFiles& files,
                                      std::shared_ptr<const text::Tokenizer> tokenizer) {
  auto text = read_text(options.chat);
  if (!text.ok()) return text.status();
  auto conversation = parse_chat(*text, options.chat);
  if (!conversation.ok()) return conversation.status();
  if (Status s = check_messages(conversation->messages, options.chat); !s.ok()) return s;
  auto formatter = engine::ChatFormatter::create(files, std::move(tokenizer));
  if (!formatter.ok()) return formatter.status();
  return formatter->prompt_ids(*conversation);
}

}  // namespace

Result<std::vector<int32_t>> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    if (*at == ' ' || *at == ',' || *at == '\n' || *at == '\t' || *at == '[' || *at == ']' ||
        *at == '\r') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto parsed = std::from_chars(at, end, id);
    if (parsed.ec != std::errc{})
      return invalid_argument(fmt::format("ids: no number at byte {}", at - text.data()));
    ids.push_back(id);
    at = parsed.ptr;
  }
  return ids;
}

Status run_tokenize(const TokenizeOptions& options) {
  const int sources =
      (options.has_text ? 1 : 0) + (options.file.empty() ? 0 : 1) + (options.chat.empty() ? 0 : 1);
  if (sources > 1) return invalid_argument("TEXT, -f and --chat each say what: give one of them");
  if (options.decode && !options.chat.empty())
    return invalid_argument("--decode makes ids to text, --chat a chat to ids: give one of them");
  auto files = open_files(options.common);
  if (!files.ok()) return files.status();
  auto tokenizer = (*files)->load_tokenizer();
  if (!tokenizer.ok()) return tokenizer.status();
  std::string text = options.text;
  if (!options.file.empty()) {
    auto content = read_text(options.file);
    if (!content.ok()) return content.status();
    text = std::move(content).value();
  } else if (!options.has_text && options.chat.empty()) {
    return invalid_argument("nothing to tokenize: give TEXT, -f FILE or --chat FILE.json");
  }
  std::vector<int32_t> ids;
  if (options.decode || !options.chat.empty()) {
    auto parsed = options.decode ? parse_ids(text) : chat_ids(options, **files, *tokenizer);
    if (!parsed.ok()) return parsed.status();
    ids = std::move(parsed).value();
    for (const int32_t id : ids) {
      if (id < 0 || id >= (*tokenizer)->vocab_size()) {
        return invalid_argument(
            fmt::format("id {} is outside the vocabulary of {}", id, (*tokenizer)->vocab_size()));
      }
    }
  } else {
    ids = (*tokenizer)
              ->encode(text, {.add_special_tokens = !options.no_special,
                              .parse_special = options.parse_special});
  }
  if (options.common.json) {
    Json object = {{"ids", ids}, {"pieces", Json::array()}};
    for (int32_t id : ids) object["pieces"].push_back(std::string((*tokenizer)->piece(id)));
    object["text"] = (*tokenizer)->decode(ids, false);
    return print(object.dump() + "\n");
  }
  if (options.decode) return print((*tokenizer)->decode(ids, false) + "\n");
  std::string out;
  for (int32_t id : ids) out += fmt::format("{:>8}  {}\n", id, one_line((*tokenizer)->piece(id)));
  return print(out + fmt::format("{} tokens\n", ids.size()));
}

}  // namespace pelton::cli
