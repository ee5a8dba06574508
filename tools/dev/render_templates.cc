// Renders chat templates for tools/dev/template_goldens.py: one JSON object a line on stdin,
// {"template": TEXT, "contexts": [...]}; one JSON list a line on stdout, of {"text"} or {"error"}.
#include <iostream>
#include <string>

#include "text/chat_template.h"

int main() {
  using pelton::Json;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json job = *Json::parse(line);
    Json results = Json::array();
    const auto compiled = pelton::text::ChatTemplate::compile(job["template"].as_string());
    for (const Json& context : job["contexts"].elements()) {
      if (!compiled.ok()) {
        results.push_back({{"error", compiled.status().to_string()}});
        continue;
      }
      const auto text = (*compiled)->render(context);
      if (text.ok()) {
        results.push_back({{"text", *text}});
      } else {
        results.push_back({{"error", text.status().message()}});
      }
    }
    std::cout << results.dump() << std::endl;
  }
}
