// The language against jinja2's results, one construct a snippet, and the budgets.
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/support/source_root.h"
#include "text/chat_template.h"

namespace pelton::text {
namespace {

Json load(const std::string& name) {
  const auto text =
      read_file(pelton::source_root().string() + "/tests/golden/templates/" + name, 64u << 20);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *Json::parse(*text) : Json();
}

Json snippet_context() {
  return *Json::parse(R"({"messages": [{"role": "system", "content": "s"},
                                              {"role": "user", "content": "<hi>"}],
                               "bos_token": "<s>"})");
}

Result<std::string> render(const std::string& source, TemplateLimits limits = {}) {
  const auto compiled = ChatTemplate::compile(source, limits);
  if (!compiled.ok()) return compiled.status();
  return (*compiled)->render(snippet_context());
}

std::string error_of(const std::string& source, TemplateLimits limits = {}) {
  const auto result = render(source, limits);
  return result.ok() ? "rendered: " + *result : result.status().message();
}

TEST(Jinja, SnippetsEqualTheReference) {
  const Json snippets = load("snippets.json");
  ASSERT_GE(snippets.size(), 80u);
  for (const Json& snippet : snippets.elements()) {
    const auto source = snippet["template"].as_string();
    const auto ours = render(source);
    if (snippet.contains("text")) {
      ASSERT_TRUE(ours.ok()) << source << "\n" << ours.status().to_string();
      EXPECT_EQ(*ours, snippet["text"].as_string()) << source;
    } else {
      EXPECT_FALSE(ours.ok()) << source;
      if (snippet.contains("raised") && snippet["raised"].as_bool() && !ours.ok()) {
        EXPECT_NE(ours.status().message().find(snippet["error"].as_string().substr(0, 20)),
                  std::string::npos)
            << source << "\n"
            << ours.status().message();
      }
    }
  }
}

TEST(Jinja, CompileErrorsNameLineAndConstruct) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{{ x|nosuch }}", "line 2: unknown filter 'nosuch'"},
      {"a\n\n{% if x is nosuch %}{% endif %}", "line 3: unknown test 'nosuch'"},
      {"\n{% include 'other' %}", "line 2: unsupported statement 'include'"},
      {"{% block b %}{% endblock %}", "line 1: unsupported statement 'block'"},
      {"{% for x in y recursive %}{% endfor %}", "line 1: unsupported: a recursive loop"},
      {"{% if x %}\n{% for y in z %}\n", "the block opened on line 2 needs 'endfor'"},
      {"\n{{ 'a'.encode('utf8') }}", "line 2: unsupported method 'encode'"},
      {"{{ x[1, 2] }}", "a subscript with several indices is not supported"},
      {"{% break %}", "'break' outside of a loop"},
      {"{{ 99999999999999999999 }}", "does not fit 64 bits"},
      {"{{ ' }}", "a string is not closed"},
      {"{# never", "Missing end of comment tag"},
      {"{% raw %}x", "Missing end of raw directive"},
      {"\xFF", "not valid UTF-8"},
  };
  for (const auto& [source, expected] : cases) {
    EXPECT_NE(error_of(source).find(expected), std::string::npos)
        << source << " gives: " << error_of(source);
  }
}

TEST(Jinja, NestingIsBounded) {
  const auto repeat = [](const std::string& part, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += part;
    return out;
  };
  for (size_t count : {size_t{80}, size_t{20000}}) {
    const std::string sources[] = {
        "{{ " + repeat("(", count) + "1" + repeat(")", count) + " }}",
        "{{ " + repeat("[", count) + repeat("]", count) + " }}",
        "{{ " + repeat("-", count) + "1 }}",
        "{{ " + repeat("1 if 1 else ", count) + "1 }}",
        repeat("{% if 1 %}", count) + repeat("{% endif %}", count),
        "{% for " + repeat("(", count) + "x" + repeat(")", count) + " in y %}{% endfor %}",
        "{{ x is in " + repeat("[", count) + repeat("]", count) + " }}",
        "{{ " + repeat("{1:", count) + "1" + repeat("}", count) + " }}",
    };
    for (const std::string& source : sources) {
      EXPECT_NE(error_of(source).find("deeper than 64"), std::string::npos)
          << source.substr(0, 40) << " gives: " << error_of(source).substr(0, 200);
    }
  }
  // Chains do not nest, whatever their length.
  EXPECT_EQ(*render("{{ 1" + repeat(" + 1", 5000) + " }}"), "5001");
  EXPECT_EQ(*render("{{ 'a'" + repeat("|trim", 5000) + " }}"), "a");
  EXPECT_EQ(*render("{{ " + repeat("not ", 5000) + "1 }}"), "True");
  EXPECT_EQ(*render("{{ 0" + repeat(" or 0", 5000) + " }}"), "0");
}

TEST(Jinja, BudgetsEndRunawayTemplates) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for i in range(10**9) %}{% endfor %}", "range too big"},
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "budget"},
      {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macro calls nest deeper"},
      {"{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", "macro calls nest deeper"},
      {"{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
       "%}{% endfor %}",
       "limit of 16777216 bytes"},
      {"{% set ns = namespace(s=['aaaaaaaa']) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
       "%}{% endfor %}",
       "budget"},
      {"{% set ns = namespace(s=[]) %}{% for i in range(999) %}{% set ns.s = [ns.s, ns.s] %}{% "
       "endfor %}",
       "nested deeper"},
      {"{{ 'x' * 10**15 }}", "limit of 16777216 bytes"},
      {"{{ [0] * 10**15 }}", "budget"},
      {"{{ ''|center(10**15) }}", "budget"},
      {"{{ 'a'.ljust(10**15) }}", "budget"},
      {"{{ '%1000000000s' % 'a' }}", "width"},
      {"{{ [1]|batch(10**15, 0)|list }}", "budget"},
      {"{{ ('x' * 10**4).replace('', 'y' * 10000) }}", "limit of 16777216 bytes"},
      {"{{ ('xxxxxxxxxx' * 10**6)|join('xxxx') }}", "budget"},
      {"{{ 'a'|indent(10**15) }}", "limit of 16777216 bytes"},
      {"{{ [1]|tojson(indent=10**15) }}", "limit of 16777216 bytes"},
      {"{{ 2 ** 100 }}", "does not fit 64 bits"},
      {"{{ (-2 ** 63) // -1 }}", "does not fit 64 bits"},
      {"{{ strftime_now('%9999999999d') }}", "unsupported format"},
      {"{% set s = 'abababababababababababababababab' * 100000 %}{% for i in range(90000) %}{% if "
       "'ba' * 9 + 'x' in s %}{% "
       "endif "
       "%}{% endfor %}",
       "steps is spent"},
  };
  TemplateLimits limits;
  limits.max_steps = 300'000;
  for (const auto& [source, expected] : cases) {
    const std::string error = error_of(source, limits);
    EXPECT_NE(error.find(expected), std::string::npos)
        << source << " gives: " << error.substr(0, 300);
  }
  std::string maps = "{{ ['a']|map('map'";
  for (int i = 0; i < 2000; ++i) maps += ", 'map'";
  EXPECT_NE(error_of(maps + ", 'upper')|list }}").find("nests deeper"), std::string::npos);
}

TEST(Jinja, LimitsAreTheCallers) {
  TemplateLimits limits;
  limits.max_output_bytes = 100;
  EXPECT_NE(error_of("{% for i in range(99) %}xyz{% endfor %}", limits).find("100 bytes"),
            std::string::npos);
  limits = {};
  limits.max_steps = 50;
  EXPECT_NE(error_of("{% for i in range(99) %}{% endfor %}", limits).find("50 steps"),
            std::string::npos);
}

TEST(Jinja, MutableObjectsMayPointAtThemselves) {
  EXPECT_EQ(*render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}"
                    "{{ ns.me.me.l|length }}{{ ns == ns.me }}"),
            "1True");
  EXPECT_EQ(*render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro m() %}{{ i }}"
                    "{% endmacro %}{% set ns.m = m %}{{ loop.changed(loop) }}{% endfor %}"
                    "{{ ns.m() }}"),
            "TrueFalse2");
}

TEST(Jinja, NothingLeadsOutside) {
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ messages.__init__.__globals__ }}",
        "{{ self }}{{ self.x }}", "{{ cycler('a').next() }}",
        "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ namespace.__init__ }}{{ namespace.__init__.x }}", "{{ '{0.__class__}'.format(1) }}",
        "{{ messages[0].pop('role') }}", "{{ messages.append(1) }}", "{{ lipsum.__globals__ }}"}) {
    EXPECT_FALSE(render(source).ok()) << source << " gives: " << error_of(source);
  }
}

}  // namespace
}  // namespace pelton::text
