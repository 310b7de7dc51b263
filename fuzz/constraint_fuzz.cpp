// fuzz/constraint_fuzz.cpp: any text as a schema or a pattern must be compiled or refused within
// its limits, and an answer that follows it must never be stuck before its end.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/json_text.h"
#include "grammar/automaton.h"
#include "grammar/json_parts.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/runs.h"

namespace {

using namespace danlu::grammar;

constexpr uint64_t kMostWork = 2000000, kMostWorkOfAStep = 1024 + (1 << 16);

Automaton compile(const std::string& text, uint8_t kind) {
  AutomatonBuilder builder;
  const Rule root = builder.add_rule();
  if (kind % 2 == 0) {
    add_regex(builder, root.begin, root.end, text,
              kind % 4 == 0 ? RegexUse::kWhole : RegexUse::kSearch,
              static_cast<Spelling>(kind / 8 % 4));
  } else {
    const danlu::Json schema = danlu::parse_json(text, "input");
    const bool in_tags = kind % 4 == 3;
    JsonParts parts(builder, in_tags);
    SchemaWriter writer(builder, parts, schema, "schema");
    if (in_tags) {
      writer.add_tagged(root.begin, root.end, [&](State from, State to, const std::string& tag) {
        builder.literal(from, to, tag);
      });
    } else {
      writer.add(root.begin, root.end);
    }
  }
  return std::move(builder).finish(root);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 5000) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const Automaton automaton = compile(text, data[0]);
    Runs runs(automaton);
    Runs::Set set = runs.start();
    // The input's own bytes choose among those that may come.
    for (size_t step = 0; step < 200 && runs.work() < kMostWork; ++step) {
      const uint8_t wish = data[step % size];
      Runs::Set next = Runs::kNothing;
      for (int i = 0; i < 256 && next == Runs::kNothing; ++i) {
        const uint64_t before = runs.work();
        next = runs.step(set, static_cast<uint8_t>(wish + i));
        if (runs.work() - before > kMostWorkOfAStep) std::abort();
      }
      if (next == Runs::kNothing) {
        if (!runs.may_end(set)) std::abort();
        break;
      }
      set = next;
    }
  } catch (const danlu::Error&) {
  }
  return 0;
}
