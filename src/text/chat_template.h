// Chat templates: an interpreter of the Jinja subset that model families use, with budgets for
// steps, output and depth and no access to anything but its input. Equals jinja2 as transformers
// configures it (trim_blocks, lstrip_blocks, loop controls, its tojson, raise_exception,
// strftime_now) on that subset.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_tree.h"
#include "base/result.h"
#include "text/template_limits.h"

namespace pelton::text {

class ChatTemplate {
 public:
  // Compiles; an unsupported construct is an error naming line and construct.
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string_view source,
                                                             TemplateLimits limits = {});

  // Renders with `context` (an object) as globals: messages, tools, add_generation_prompt,
  // bos_token, eos_token, ... raise_exception gives kInvalidArgument with the template's own text;
  // so does a spent budget, naming it.
  Result<std::string> render(const Json& context) const;

  // A rendered prompt with the parts that came from the request marked, so that control-token text
  // typed by a user stays plain text: a control token may only be matched inside parts that are not
  // from_user, and never across a border. Concatenated pieces equal render()'s text; neighbours
  // differ in from_user and none is empty. The template's own text, *_token globals and well-known
  // role names are trusted; every other string and key of the context is the user's, through every
  // filter and method.
  struct Piece {
    std::string text;
    bool from_user;
  };
  Result<std::vector<Piece>> render_pieces(const Json& context) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Readies a request's messages for templates, in place: tool calls' `arguments` that are JSON text
// become objects. Anything else there is an error naming the message.
Status normalize_messages(Json* messages);

}  // namespace pelton::text
