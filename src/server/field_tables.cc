// The tables themselves. A field that is not here is refused as unknown.
#include <array>
#include <limits>

#include "server/field_readers.h"
#include "server/fields.h"

namespace pelton::server {
namespace {

constexpr double kMaxInt = std::numeric_limits<int32_t>::max();
constexpr double kMaxFloat = 1e6;
using R = ApiRequest;
using S = SamplingParams;

constexpr Field plain(std::string_view name, FieldTarget target, double low, double high,
                      std::string_view help) {
  return {.name = name, .help = help, .target = target, .low = low, .high = high};
}

constexpr Field custom(std::string_view name, FieldReader read, std::string_view schema,
                       std::string_view help) {
  return {.name = name, .help = help, .read = read, .schema = schema};
}

constexpr Field refused(std::string_view name, std::string_view help) {
  return custom(name, refuse_if_set, "{}", help);
}

constexpr Field ignored(std::string_view name) {
  return custom(name, ignore_value, "{}", "Read and left alone.");
}

constexpr std::string_view kStopSchema =
    R"({"oneOf":[{"type":"string","minLength":1,"maxLength":64},{"type":"array","maxItems":16,"items":{"type":"string","minLength":1,"maxLength":64}}]})";
constexpr std::string_view kIdsSchema =
    R"({"type":"array","items":{"type":"integer","minimum":0}})";
constexpr std::string_view kStopIdsSchema =
    R"({"type":"array","maxItems":256,"items":{"type":"integer","minimum":0}})";
constexpr std::string_view kPromptSchema =
    R"({"oneOf":[{"type":"string"},{"type":"array","minItems":1,"maxItems":128,"items":{"type":"string"}},{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}},{"type":"array","minItems":1,"maxItems":128,"items":{"type":"array","minItems":1,"items":{"type":"integer","minimum":0}}}]})";
constexpr std::string_view kMessagesSchema =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role"],"properties":{"role":{"type":"string","enum":["system","developer","user","assistant","tool"]},"content":{"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]},"name":{"type":"string"},"tool_call_id":{"type":"string"},"tool_calls":{"type":"array"},"reasoning_content":{"type":"string"}}}})";
constexpr std::string_view kToolsSchema =
    R"({"type":"array","maxItems":256,"items":{"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},"function":{"type":"object","required":["name"],"properties":{"name":{"type":"string","pattern":"^[A-Za-z0-9_.-]{1,64}$"},"description":{"type":"string"},"parameters":{"type":"object"}}}}}})";
constexpr std::string_view kTurnsSchema =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],"properties":{"role":{"type":"string","enum":["user","assistant"]},"content":{"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object","required":["type"],"properties":{"type":{"enum":["text","tool_use","tool_result","thinking","redacted_thinking"]}}}}]}}}})";
constexpr std::string_view kTurnToolsSchema =
    R"({"type":"array","maxItems":256,"items":{"type":"object","required":["name","input_schema"],"properties":{"name":{"type":"string","pattern":"^[A-Za-z0-9_.-]{1,64}$"},"description":{"type":"string"},"input_schema":{"type":"object"}}}})";
constexpr std::string_view kSystemSchema =
    R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]})";
constexpr std::string_view kBiasSchema =
    R"({"type":"object","maxProperties":1024,"additionalProperties":{"type":"number","minimum":-100,"maximum":100}})";
constexpr std::string_view kStreamSchema =
    R"({"type":"object","properties":{"include_usage":{"type":"boolean"}}})";
constexpr std::string_view kFormatSchema =
    R"({"type":"object","required":["type"],"properties":{"type":{"const":"text"}}})";

// Fields that OpenAI's and Anthropic's routes have in common.
constexpr Field kTemperature =
    plain("temperature", &S::temperature, 0, 100, "0 takes the most likely token.");
constexpr Field kTopP = {.name = "top_p",
                         .help = "The most likely tokens of this total probability.",
                         .target = &S::top_p,
                         .low = 0,
                         .high = 1,
                         .low_open = true};
constexpr Field kTopK =
    plain("top_k", &S::top_k, -1, kMaxInt, "The k most likely tokens; 0 and -1 are all.");
constexpr Field kSeed = custom("seed", read_seed, R"({"type":"integer"})", "Same seed, same text.");
constexpr Field kIgnoreEos =
    plain("ignore_eos", &S::ignore_eos, 0, 0, "Go on after the end token.");
constexpr Field kStream = plain("stream", &R::stream, 0, 0, "Server-sent events.");
constexpr Field kPriority = plain("priority", &R::priority, -1000, 1000, "Lower runs first.");
constexpr Field kCacheSalt =
    plain("cache_salt", &R::cache_salt, 0, 256, "Prefixes are shared among equal salts only.");

// What every route that generates text shares.
constexpr std::array kSampling = {
    plain("model", &R::model, 0, 256, "A served model's name; the served one when absent."),
    kTemperature,
    kTopP,
    kTopK,
    plain("min_p", &S::min_p, 0, 1, "Drops tokens below this share of the likeliest one's."),
    Field{.name = "typical_p",
          .help = "Locally typical sampling; 1 is off.",
          .target = &S::typical_p,
          .low = 0,
          .high = 1,
          .low_open = true},
    plain("presence_penalty", &S::presence_penalty, -2, 2, "On tokens that the answer holds."),
    plain("frequency_penalty", &S::frequency_penalty, -2, 2, "On them, by their number."),
    Field{.name = "repetition_penalty",
          .help = "Over prompt and answer; 1 is off.",
          .target = &S::repetition_penalty,
          .low = 0,
          .high = 100,
          .low_open = true},
    plain("dry_multiplier", &S::dry_multiplier, 0, kMaxFloat, "Against repeated sequences."),
    plain("dry_base", &S::dry_base, 1, kMaxFloat, "Growth of that penalty."),
    plain("dry_allowed_length", &S::dry_allowed_length, 1, kMaxInt, "Repetitions that are free."),
    custom("logit_bias", read_logit_bias, kBiasSchema, "Added to the logits of token ids."),
    kSeed,
    custom("stop", read_stop, kStopSchema, "The text ends before the first of these."),
    custom("stop_token_ids", read_stop_token_ids, kStopIdsSchema, "Token ids that end the answer."),
    plain("include_stop_str_in_output", &S::include_stop_str_in_output, 0, 0,
          "Keep the stop string."),
    kIgnoreEos,
    plain("min_tokens", &S::min_tokens, 0, kMaxInt, "No end before this many tokens."),
    plain("max_tokens", &R::max_tokens, 0, kMaxInt,
          "Tokens to generate at most; 0 runs the prompt alone; beyond the context it is cut."),
    plain("n", &S::n, 1, 16, "Answers to each prompt."),
    kStream,
    custom("stream_options", read_stream_options, kStreamSchema, "include_usage."),
    kPriority,
    kCacheSalt,
    Field{.name = "timeout",
          .help = "Seconds after which the request is given up.",
          .target = &R::timeout_s,
          .low = 0,
          .high = 86400,
          .low_open = true},
    plain("timings", &R::timings, 0, 0, "Where the time went, in the answer."),
    custom("response_format", read_response_format, kFormatSchema, "Only text."),
    ignored("user"),
    ignored("metadata"),
    ignored("service_tier"),
    ignored("safety_identifier"),
    ignored("prompt_cache_key"),
    plain("skip_special_tokens", &S::skip_special_tokens, 0, 0, "Control tokens leave no text."),
    refused("lora_request", "Adapters come later."),
    refused("guided_json", "Constrained output comes later."),
    refused("guided_regex", "Constrained output comes later."),
    refused("guided_choice", "Constrained output comes later."),
    refused("guided_grammar", "Constrained output comes later."),
    refused("structured_outputs", "Constrained output comes later."),
    refused("use_beam_search", "Not over HTTP."),
    refused("chat_template", "Templates come with the model."),
};

constexpr std::array kCompletionOwn = {
    Field{.name = "prompt",
          .help = "Text, token ids, or a list of either.",
          .read = read_prompt,
          .schema = kPromptSchema,
          .required = true},
    plain("echo", &R::echo, 0, 0, "The prompt before the answer."),
    plain("logprobs", &S::logprobs, 0, 20, "Log-probabilities of this many likeliest tokens."),
    plain("best_of", &R::best_of, 1, 16, "Only the value of n."),
    plain("add_special_tokens", &R::add_special_tokens, 0, 0, "What the model puts around a text."),
    plain("parse_special", &R::parse_special, 0, 0, "Control tokens spelled in it are such."),
    custom("suffix", refuse_value, "{}", "Not supported."),
};

constexpr std::array kChatOwn = {
    Field{.name = "messages",
          .help = "The conversation.",
          .read = read_messages,
          .schema = kMessagesSchema,
          .required = true},
    plain("max_completion_tokens", &R::max_completion_tokens, 0, kMaxInt, "As max_tokens."),
    plain("logprobs", &R::want_logprobs, 0, 0, "Log-probabilities of the answer's tokens."),
    plain("top_logprobs", &R::top_logprobs, 0, 20, "And of this many likeliest ones."),
    plain("add_generation_prompt", &R::add_generation_prompt, 0, 0,
          "End the prompt with the beginning of an answer."),
    custom("chat_template_kwargs", read_template_kwargs, R"({"type":"object"})",
           "Further variables of the template."),
    custom("modalities", read_modalities, R"({"type":"array","items":{"const":"text"}})",
           "Only text."),
    custom("tools", read_tools, kToolsSchema, "Functions that the answer may call."),
    custom("tool_choice", read_tool_choice, R"({"enum":["none","auto"]})",
           "none hides the tools from the model."),
    plain("parallel_tool_calls", &R::parallel_tool_calls, 0, 0,
          "False: calls after the first are left out."),
    refused("functions", "Not supported."),
    custom("function_call", refuse_value, "{}", "Not supported."),
    custom("audio", refuse_value, "{}", "Not supported."),
    custom("prediction", refuse_value, "{}", "Not supported."),
    custom("reasoning_effort", refuse_value, "{}", "Not supported."),
    custom("verbosity", refuse_value, "{}", "Not supported."),
    custom("web_search_options", refuse_value, "{}", "Not supported."),
    refused("store", "Nothing is stored."),
    refused("continue_final_message", "Not supported."),
};

// What both routes of Anthropic's API read.
constexpr std::array kTurnFields = {
    plain("model", &R::model, 0, 256, "A served model's name; the served one when absent."),
    Field{.name = "messages",
          .help = "The conversation, ending with the user's turn.",
          .read = read_turns,
          .schema = kTurnsSchema,
          .required = true},
    custom("system", read_system, kSystemSchema, "What stands before the conversation."),
    custom("tools", read_turn_tools, kTurnToolsSchema, "Functions that the answer may call."),
    custom(
        "tool_choice", read_turn_tool_choice,
        R"({"type":"object","required":["type"],"properties":{"type":{"enum":["auto","none"]},"disable_parallel_tool_use":{"type":"boolean"}}})",
        "auto or none."),
    custom(
        "thinking", read_thinking,
        R"({"type":"object","required":["type"],"properties":{"type":{"enum":["enabled","adaptive","disabled"]},"budget_tokens":{"type":"integer","minimum":1}}})",
        "Reasoning before the answer, where the model's template can turn it on."),
};

constexpr std::array kMessagesOwn = {
    Field{.name = "max_tokens",
          .help = "Tokens to generate at most.",
          .target = &R::max_tokens,
          .low = 1,
          .high = kMaxInt,
          .required = true},
    custom("stop_sequences", read_stop, kStopSchema, "The text ends before the first of these."),
    kStream,
    kTemperature,
    kTopP,
    kTopK,
    kSeed,
    kIgnoreEos,
    kCacheSalt,
    kPriority,
    ignored("metadata"),
    ignored("service_tier"),
    refused("mcp_servers", "Not supported."),
    custom("container", refuse_value, "{}", "Not supported."),
    refused("context_management", "Not supported."),
};

constexpr std::array kEmbeddings = {
    plain("model", &R::model, 0, 256, "A served model's name; the served one when absent."),
    Field{.name = "input",
          .help = "Text, token ids, or a list of either.",
          .read = read_prompt,
          .schema = kPromptSchema,
          .required = true},
    custom("encoding_format", read_encoding_format, R"({"enum":["float","base64"]})",
           "base64: 32-bit floats, little-endian."),
    plain("dimensions", &R::dimensions, 1, kMaxInt,
          "Only the model's own: its embeddings cannot be cut without loss."),
    custom("pooling", read_pooling, R"({"enum":["last","mean"]})",
           "Of the final hidden states: the last token's, or the mean."),
    plain("add_special_tokens", &R::add_special_tokens, 0, 0, "What the model puts around a text."),
    kPriority,
    kCacheSalt,
    Field{.name = "timeout",
          .help = "Seconds after which the request is given up.",
          .target = &R::timeout_s,
          .low = 0,
          .high = 86400,
          .low_open = true},
    ignored("user"),
};

constexpr std::array kTokenize = {
    plain("model", &R::model, 0, 256, "A served model's name."),
    plain("prompt", &R::text, 0, 1e9, "The text."),
    custom("messages", read_messages, kMessagesSchema, "Or a conversation."),
    plain("add_generation_prompt", &R::add_generation_prompt, 0, 0,
          "End with the beginning of an answer."),
    plain("add_special_tokens", &R::add_special_tokens, 0, 0, "What the model puts around a text."),
    plain("parse_special", &R::parse_special, 0, 0, "Control tokens spelled in it are such."),
    custom("chat_template_kwargs", read_template_kwargs, R"({"type":"object"})",
           "Further variables of the template."),
    custom("tools", read_tools, kToolsSchema, "Functions that the answer may call."),
};

constexpr std::array kDetokenize = {
    plain("model", &R::model, 0, 256, "A served model's name."),
    Field{.name = "tokens",
          .help = "Token ids.",
          .read = read_tokens,
          .schema = kIdsSchema,
          .required = true},
};

template <size_t A, size_t B>
std::array<Field, A + B> joined(const std::array<Field, A>& a, const std::array<Field, B>& b) {
  std::array<Field, A + B> out;
  std::copy(a.begin(), a.end(), out.begin());
  std::copy(b.begin(), b.end(), out.begin() + A);
  return out;
}

}  // namespace

std::span<const Field> completion_fields() {
  static const auto fields = joined(kCompletionOwn, kSampling);
  return fields;
}

std::span<const Field> chat_fields() {
  static const auto fields = joined(kChatOwn, kSampling);
  return fields;
}

std::span<const Field> messages_fields() {
  static const auto fields = joined(kTurnFields, kMessagesOwn);
  return fields;
}

std::span<const Field> count_tokens_fields() { return kTurnFields; }
std::span<const Field> embedding_fields() { return kEmbeddings; }
std::span<const Field> tokenize_fields() { return kTokenize; }
std::span<const Field> detokenize_fields() { return kDetokenize; }

std::span<const Route> routes() {
  static const std::array kRoutes = {
      Route{"GET", "/health", "200 while the engine makes progress, else 503", {}},
      Route{"GET", "/ready", "200 while new requests are taken, else 503", {}},
      Route{"GET", "/version", "The program's version", {}},
      Route{"GET", "/metrics", "Prometheus text", {}},
      Route{"GET", "/status", "What runs, waits and ended last", {}},
      Route{"GET", "/openapi.json", "This document", {}},
      Route{"GET", "/v1/models", "The served models", {}},
      Route{"POST", "/v1/completions", "Completes a text", completion_fields()},
      Route{"POST", "/v1/chat/completions", "Answers a conversation", chat_fields()},
      Route{"POST", "/v1/embeddings", "Embeds texts", embedding_fields()},
      Route{"POST", "/v1/messages", "Answers a conversation, as Anthropic's API",
            messages_fields()},
      Route{"POST", "/v1/messages/count_tokens", "Tokens of a conversation, as Anthropic's API",
            count_tokens_fields()},
      Route{"POST", "/tokenize", "Token ids of a text or a conversation", tokenize_fields()},
      Route{"POST", "/detokenize", "The text of token ids", detokenize_fields()},
  };
  return kRoutes;
}

}  // namespace pelton::server
