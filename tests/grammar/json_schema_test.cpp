#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <map>

#include "grammar/follow.h"
#include "grammar/random_schema.h"
#include "grammar/validator.h"
#include "support/shared_data.h"
#include "support/throws.h"
#include "text/fake_tokenizer.h"

namespace danlu::grammar {
namespace {

const Compiler& json_compiler() {
  static const Compiler kCompiler(
      std::make_shared<text::FakeTokenizer>(std::vector<std::string>{"<end>"},
                                            std::vector<std::string>{}),
      {256});
  return kCompiler;
}

bool accepts(const std::string& schema, const std::string& text) {
  return json_compiler().json_schema(Json::parse(schema))->accepts(text);
}

struct Accepted {
  std::string schema;
  std::vector<std::string> good, bad;
};

const std::vector<Accepted> kSchemas = {
    {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]})",
     {R"({"b": ""})", R"({"a": 1, "b": "x"})", "{\n  \"a\": -12,\n  \"b\": \"x\"\n}",
      R"({"a":0,"b":"\"\u00e9\ud83d\ude00"})"},
     {R"({})", R"({"a": 1})", R"({"a": 1, })", R"({"b": "x",})", R"({"b": "x", "a": 1})",
      R"({"b": "x", "c": 1})", R"({"a": 01, "b": ""})", R"({"b": "\ud83d"})", R"({"b": "\x"})",
      R"( {"b": ""})", R"({"b" : ""})", R"({"b": "" , "a": 1})"}},
    {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}})",
     {"{}", R"({"a":null})", R"({"b":null})", R"({"c":null})", R"({"a":null,"c":null})",
      R"({"a":null,"b":null,"c":null})"},
     {R"({"c":null,"a":null})", R"({,"a":null})", R"({"a":null,})", R"({"a":null,"a":null})"}},
    {R"({"properties": {"né": {"const": 1}, "nb": false}, "additionalProperties": {"type": "boolean"}, "required": ["né"]})",
     {R"({"né": 1})", R"({"né": 1, "n": true})", R"({"né": 1, "né2": true, "": false})"},
     {R"({"né": 1, "né": true})", R"({"né": 1, "nb": true})", R"({"né": 1, "x": 1})",
      R"({"x": true})"}},
    {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
     {"[1]", "[1, 2]", "[1,2,3]", "[\n 1,\n 2\n]"},
     {"[]", "[1,2,3,4]", "[1,]", "[,1]", "[1.5]"}},
    {R"({"type": "array"})", {"[]", "[1, \"a\", [], {}, null, [[[]]]]"}, {"[1,]", "[", "{}"}},
    {R"({"prefixItems": [{"const": "x"}, {"type": "boolean"}], "items": false})",
     {"[]", "[\"x\"]", "[\"x\", true]"},
     {"[\"x\", true, 1]", "[true]"}},
    {R"({"items": [{"const": "x"}], "additionalItems": {"const": 1}, "minItems": 1})",
     {"[\"x\"]", "[\"x\",1,1,1]"},
     {"[]", "[\"x\",2]"}},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {R"("ab")", R"("éab")", R"("\n\u00e9")", R"("😀\ud83d\ude00a")"},
     {R"("a")", R"("abcd")", R"("")"}},
    {R"({"type": "string", "pattern": "^a\\.b\"?$"})",
     {R"("a.b")", R"("a.b\"")"},
     {R"("axb")", R"("a.bc")"}},
    {R"({"type": "string", "pattern": "b"})", {R"("b")", R"("a\nbc")"}, {R"("a")"}},
    {R"({"type": "integer", "minimum": -12, "exclusiveMaximum": 105})",
     {"-12", "-9", "-1", "0", "9", "10", "99", "100", "104"},
     {"-13", "105", "110", "200", "-0", "1.0", "00"}},
    {R"({"type": "integer"})",
     {"0", "-1", "9223372036854775807", "-9223372036854775808"},
     {"9223372036854775808", "-", "+1"}},
    {R"({"type": "number"})",
     {"0", "-0.5", "1e5", "1.25E-07", "123456789.5"},
     {".5", "1.", "1e", "01", "1e400"}},
    {R"({"type": "number", "minimum": 0, "maximum": 1})",
     {"0", "0.5", "1", "1.0", "0.0"},
     {"1.01", "-0.1", "2", "1e0"}},
    {R"({"type": "number", "exclusiveMinimum": -2, "exclusiveMaximum": 3})",
     {"-1.99", "-1", "0", "2.99", "-0.5"},
     {"-2", "-2.0", "3", "3.0", "-3"}},
    {R"({"type": "number", "exclusiveMaximum": 0})",
     {"-0.5", "-1", "-12.5"},
     {"0", "-0", "-0.0", "1"}},
    {R"({"enum": ["a", "ab", 1, null, {"k": [1]}]})",
     {R"("a")", R"("ab")", "1", "null", R"({"k": [1]})", R"({"k":[1]})"},
     {R"("abc")", "2", "{}"}},
    {R"({"enum": ["a", 1], "type": "string"})", {R"("a")"}, {"1"}},
    {R"({"anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}]})",
     {R"("x")", R"({"a": 1})"},
     {"1", "{}"}},
    {R"({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"],
         "oneOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {"const": 2}}, "required": ["b"]}]})",
     {R"({"k": "", "a": 1})", R"({"k": "", "b": 2})"},
     {R"({"k": ""})", R"({"k": "", "a": 1, "b": 2})"}},
    {R"({"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}],
         "$defs": {"A": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}}})",
     {R"({"a": 3, "b": 1})"},
     {R"({"a": 3})", R"({"b": 1})"}},
    {R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"},
         "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": false}}})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1})", R"({"v":1,"next":{"v":2}})"}},
    {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
    {R"({"type": "integer", "nullable": true})", {"1", "null"}, {"\"\""}},
    {R"({})", {"1", "{\"a\": [null]}", "\"\""}, {"", "nul", "1 "}},
    {R"({"type": ["integer", "null"], "description": "d", "title": "t", "default": 3})",
     {"1", "null"},
     {"true"}},
    {R"({"type": "string", "format": "date"})",
     {R"("2024-02-29")", R"("2000-02-29")", R"("2023-12-31")"},
     {R"("2023-02-29")", R"("1900-02-29")", R"("2023-04-31")", R"("2023-13-01")"}},
    {R"({"type": "string", "format": "date-time"})",
     {R"("2024-02-29T23:59:59Z")", R"("2024-01-01T00:00:00.123+08:00")"},
     {R"("2024-01-01")", R"("2024-01-01T24:00:00Z")"}},
    {R"({"type": "string", "format": "uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("123e4567")"}},
    {R"({"type": "string", "format": "ipv4"})",
     {R"("0.0.0.0")", R"("255.249.199.99")"},
     {R"("256.1.1.1")", R"("01.1.1.1")"}},
    {R"({"type": "object", "patternProperties": {"^[a-c]+$": {"type": "integer"}}})",
     {"{}", R"({"a": 1})", R"({"abc":1,"cc":-2})"},
     {R"({"d": 1})", R"({"a": "x"})", R"({"ad": 1})", R"({"": 1})"}},
    {R"({"properties": {"id": {"const": 1}}, "patternProperties": {"^S_": {"type": "string"}, "^I_": {"type": "integer"}},
         "additionalProperties": false, "required": ["id", "S_é\""]})",
     {R"({"id": 1, "S_é\"": "x"})", R"({"id":1,"S_é\"":"","I_x":3,"S_":"","I_":0})"},
     {R"({"id": 1})", R"({"id": 1, "S_é\"": 1})", R"({"id": 1, "S_é\"": "x", "I_": ""})",
      R"({"id": 1, "S_é\"": "x", "X": 1})"}},
    {R"({"items": {"enum": ["a", "b", 3]}, "uniqueItems": true})",
     {"[]", R"(["a"])", R"([3,"b","a"])", R"(["b", "a"])"},
     {R"(["a","a"])", R"(["a","b","a"])", "[3, 3]", R"(["a","b",3,"c"])", R"(["a",])"}},
    {R"({"items": {"$ref": "#/$defs/e"}, "uniqueItems": true, "minItems": 2, "maxItems": 2,
         "$defs": {"e": {"enum": ["a", 1, 1.0, [2]], "type": ["string", "array"]}}})",
     {R"(["a",[2]])", R"([[2],"a"])"},
     {"[]", R"(["a"])", R"(["a",1])", "[[2],[2]]"}},
    {R"({"items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})",
     {"[]", R"(["x"])"},
     {R"(["x","y"])"}},
    {R"({"type": "integer", "multipleOf": 7})",
     {"0", "7", "-14", "700000000000000007", "9223372036854775807", "-7"},
     {"1", "-8", "70000000000000001", "07", "9223372036854775801"}},
    {R"({"type": "integer", "multipleOf": 7, "minimum": -20, "exclusiveMaximum": 1001})",
     {"-14", "-7", "0", "994"},
     {"-21", "1001", "995", "1"}},
    {R"({"type": "integer", "multipleOf": 12, "minimum": -99999999999, "maximum": 123456789012})",
     {"0", "-99999999996", "123456789012", "12"},
     {"123456789024", "-100000000008", "6"}},
    {R"({"type": "integer", "multipleOf": 2500, "minimum": 1, "maximum": 10000})",
     {"2500", "10000"},
     {"0", "2501", "12500"}},
    {R"({"type": "integer", "multipleOf": 0.5})", {"1", "-3"}, {"1.5"}},
    {R"({"type": "number", "multipleOf": 5, "minimum": 0.5})", {"5", "10"}, {"0", "4", "5.5"}},
    {R"({"type": "number", "multipleOf": 0.01})",
     {"0", "1.25", "-3.1", "12"},
     {"1.255", "1e2", "0.001"}},
    {R"({"type": "number", "multipleOf": 0.1, "minimum": -1, "exclusiveMaximum": 1})",
     {"0.9", "-1", "-1.0", "-0.5"},
     {"1", "1.0", "0.95", "-1.1"}},
    {R"({"type": "string", "format": "ipv6"})",
     {R"("::")", R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("fe80::1:2")", R"("1::")",
      R"("1:2:3:4:5:6:7::")"},
     {R"("1:2:3:4:5:6:7")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8:9")", R"("1:2:3:4:5:6:7::8")"}},
    {R"({"type": "string", "format": "email"})", {R"("a.b@c.de")"}, {R"("a@b")", R"("@c.de")"}},
    {R"({"type": "string", "format": "duration"})",
     {R"("P1DT2H")", R"("PT5M")", R"("P3W")"},
     {R"("P")", R"("PT")", R"("5M")"}},
};

TEST(JsonSchema, AcceptsWhatSatisfiesASchemaAndNothingElse) {
  for (const Accepted& c : kSchemas) {
    SCOPED_TRACE(c.schema);
    for (const std::string& text : c.good) EXPECT_TRUE(accepts(c.schema, text)) << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(accepts(c.schema, text)) << text;
  }
}

TEST(JsonSchema, NamesWhatItDoesNotFollow) {
  const std::map<std::string, std::string> cases = {
      {R"({"properties": {"a/b": {"not": {}}}})",
       "[schema] #/properties/a~1b: keyword 'not' is not supported"},
      {R"({"if": {}, "then": {}})", "[schema] #: keyword 'if' is not supported"},
      {R"({"patternProperties": []})", "[schema] #: \"patternProperties\" must be an object"},
      {R"({"patternProperties": {"a": {"type": "string"}}, "additionalProperties": true})",
       "[schema] #: additionalProperties beside patternProperties is not supported, unless it is "
       "false"},
      {R"({"properties": {"ab": {}}, "patternProperties": {"^a": {"type": "string"}}})",
       "[schema] #: 'ab' is in properties and matches '^a' of patternProperties, which is not "
       "supported"},
      {R"({"patternProperties": {"b$": {"type": "null"}, "^a": {"type": "string"}}})",
       "[schema] #: a name may match both 'b$' and '^a' of patternProperties, which is not "
       "supported"},
      {R"x({"patternProperties": {"(?=a)": {}}})x",
       "[schema] #/patternProperties/(?=a): pattern '(?=a)', byte 2: this kind of group is not "
       "supported"},
      {R"({"items": {"uniqueItems": true}})",
       "[schema] #/items: uniqueItems is followed where all items are of one enumeration of at "
       "most 10 values"},
      {R"({"items": {"enum": [1, 2]}, "uniqueItems": true, "minItems": 3})",
       "[schema] #: there are fewer values than items that must differ"},
      {R"({"type": "integer", "multipleOf": 333})",
       "[schema] #: multipleOf 333 is followed up to 100, or between bounds with at most 1000 "
       "values"},
      {R"({"type": "integer", "multipleOf": 1.5})",
       "[schema] #: multipleOf 1.5 is not supported: it must be whole"},
      {R"({"type": "integer", "multipleOf": 0})",
       "[schema] #: \"multipleOf\" must be a number above 0"},
      {R"({"type": "integer", "multipleOf": 9, "minimum": 1, "maximum": 8})",
       "[schema] #: no multiple of 9 is between the bounds"},
      {R"({"type": "strin"})", "[schema] #: '\"strin\"' is no type"},
      {R"({"$ref": "http://x/y"})",
       "[schema] #: \"$ref\": 'http://x/y' is outside of the schema; only '#/…' is followed"},
      {R"({"$ref": "#/$defs/x"})", "[schema] #: \"$ref\": '#/$defs/x' leads nowhere"},
      {R"({"$ref": "#"})", "the constraint refers to itself without anything in between, for ever"},
      {R"({"anyOf": [{"type": "null"}, {"$ref": "#"}]})",
       "the constraint refers to itself without anything in between, for ever"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "no text satisfies the constraint"},
      {R"({"type": "number", "minimum": 0.5})",
       "[schema] #: \"minimum\": 0.5 is no whole number, which a bound of numbers must be"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})",
       "[schema] #: the lower bound is above the upper one"},
      {R"({"type": "string", "format": "date", "minLength": 1})",
       "[schema] #: of pattern, format and a length only one at a time is supported"},
      {R"x({"type": "string", "pattern": "(?!a)"})x",
       "[schema] #: pattern '(?!a)', byte 2: this kind of group is not supported"},
      {R"({"required": ["a"], "properties": {"b": {}}})",
       "[schema] #: 'a' is required, but no member may be called so"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})",
       "[schema] #: no type is in both schemas"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})",
       "[schema] #: two schemas with different 'pattern' are not merged"},
      {R"({"minItems": -1})", "[schema] #: \"minItems\" must be a whole number from 0 on"},
      {R"({"enum": ["a"], "minLength": 3})",
       "[schema] #: 'minLength' beside enum or const is not supported"},
      {R"([])", "[schema] #: a schema must be an object or true or false"},
      {R"(false)", "no text satisfies the constraint"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_EQ(test::error_of<GrammarError>(
                  [&, &text = schema] { json_compiler().json_schema(Json::parse(text)); }),
              message)
        << schema;
  }
  const std::string format = test::error_of<GrammarError>(
      [] { json_compiler().json_schema(Json::parse(R"({"format": "colour"})")); });
  EXPECT_EQ(format.find("[schema] #: format 'colour' is not known; known: date, date-time, "), 0u)
      << format;
}

TEST(JsonSchema, BombsAreRefusedOrHarmless) {
  // Each level refers to the next twice: 2^40 if it were written out.
  Json defs = Json::object();
  for (int i = 0; i < 40; ++i) {
    const std::string next = "#/$defs/d" + std::to_string(i + 1);
    defs["d" + std::to_string(i)] = {
        {"type", "object"},
        {"properties", {{"a", {{"$ref", next}}}, {"b", {{"$ref", next}}}}},
        {"additionalProperties", false}};
  }
  defs["d40"] = {{"type", "null"}};
  const auto grammar = json_compiler().json_schema({{"$ref", "#/$defs/d0"}, {"$defs", defs}});
  EXPECT_TRUE(grammar->accepts(R"({"a": {"b": {}}})"));

  // Merging follows references; these would be merged 2^40 times.
  for (int i = 0; i < 40; ++i) {
    const std::string next = "#/$defs/d" + std::to_string(i + 1);
    defs["d" + std::to_string(i)] = {{"allOf", {{{"$ref", next}}, {{"$ref", next}}}}};
  }
  EXPECT_NE(test::error_of<GrammarError>([&] {
              json_compiler().json_schema({{"$ref", "#/$defs/d0"}, {"$defs", defs}});
            }).find("are merged"),
            std::string::npos);
  EXPECT_NE(test::error_of<GrammarError>([&] {
              json_compiler().json_schema(Json::parse(R"({"allOf": [{"$ref": "#"}]})"));
            }).find("nested more than"),
            std::string::npos);

  // Lists in lists of a thousand each.
  Json lists = {{"type", "null"}};
  for (int i = 0; i < 40; ++i) lists = {{"type", "array"}, {"items", lists}, {"maxItems", 1000}};
  EXPECT_TRUE(json_compiler().json_schema(lists)->accepts("[[[],[]]]"));
  EXPECT_NE(test::error_of<GrammarError>([] {
              json_compiler().json_schema({{"type", "array"}, {"maxItems", 100000000}});
            }).find("too large"),
            std::string::npos);
  Json deep = {{"type", "null"}};
  for (int i = 0; i < 200; ++i)
    deep = {{"type", "array"}, {"items", false}, {"prefixItems", {deep}}};
  EXPECT_NE(test::error_of<GrammarError>([&] {
              json_compiler().json_schema(deep);
            }).find("nested more than"),
            std::string::npos);

  // Two ways to read every '[': all of them at once would be 2^depth places.
  const Json ways = Json::parse(
      R"({"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]})");
  const auto ambiguous = json_compiler().json_schema(ways);
  EXPECT_TRUE(ambiguous->accepts("[[[[[]],[]]]]"));
  std::mt19937 random(1);
  const auto constraint = json_compiler().begin(ambiguous);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(is_allowed(constraint->allowed(), '[')) << i;
    constraint->accept('[');
  }
  const text::FakeTokenizer tokenizer({"<end>"}, {});
  draw(*constraint, tokenizer, 256, random, 0);
}

TEST(JsonSchema, AnyDepthEndsWhereItMust) {
  const auto grammar = json_compiler().json_object();
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += "{\"a\":";
    return text + "1" + std::string(depth, '}');
  };
  EXPECT_TRUE(grammar->accepts(nested(50)));
  EXPECT_FALSE(grammar->accepts(nested(300)));
  // Whoever opens ever more is stopped in time to close it all.
  const auto constraint = json_compiler().begin(grammar);
  std::string text;
  while (text.size() < 5000 && !is_allowed(constraint->allowed(), 256)) {
    const std::string wish = text.empty()             ? "{"
                             : text.ends_with('{')    ? "\"}"
                             : text.ends_with("{\"")  ? "\""
                             : text.ends_with("\"\"") ? ":"
                             : text.ends_with(':')    ? "{0t"
                             : text.ends_with('t')    ? "r"
                             : text.ends_with("tr")   ? "u"
                             : text.ends_with("tru")  ? "e"
                                                      : "}";
    size_t choice = 0;
    while (choice < wish.size() && !is_allowed(constraint->allowed(), wish[choice])) ++choice;
    ASSERT_LT(choice, wish.size()) << text;
    text += wish[choice];
    constraint->accept(wish[choice]);
  }
  EXPECT_TRUE(Json::accept(text)) << text;
  EXPECT_GT(text.size(), 400u);
}

void expect_documents_satisfy(const std::filesystem::path& directory, unsigned seed, int rounds) {
  const auto tokenizer = text::Tokenizer::load(directory);
  const text::TokenId stop = tokenizer->eos_id().value_or(0);
  const Compiler compiler(tokenizer, {stop});
  RandomSchemas schemas(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const Json schema = schemas.schema();
    SCOPED_TRACE(schema.dump());
    const auto grammar = compiler.json_schema(schema);
    // Completeness: what satisfies the schema is accepted, in several spellings.
    for (int i = 0; i < 4; ++i) {
      const Json document = schemas.document(schema, schema);
      ASSERT_TRUE(Validator(schema).accepts(document)) << document.dump();
      for (const std::string& text : {document.dump(), document.dump(2), python_spelling(document)})
        ASSERT_TRUE(grammar->accepts(text)) << text;
    }
    // Soundness: what is drawn satisfies it.
    const auto constraint = compiler.begin(grammar);
    const std::string text = tokenizer->decode(draw(*constraint, *tokenizer, stop, random, 25));
    ASSERT_TRUE(Json::accept(text)) << text;
    ASSERT_TRUE(Validator(schema).accepts(Json::parse(text))) << text;
  }
}

TEST(JsonSchema, RandomSchemasAreFollowedByByteLevelTokens) {
  DANLU_REQUIRES_SHARED();
  expect_documents_satisfy(test::unpacked("tokenizers") / "qwen2_5", 21, 20);
}

TEST(JsonSchema, RandomSchemasAreFollowedBySentencePieces) {
  DANLU_REQUIRES_SHARED();
  expect_documents_satisfy(test::unpacked("tokenizers") / "llama2", 22, 40);
}

TEST(JsonSchema, RandomSchemasAreFollowedByBytes) {
  RandomSchemas schemas(23);
  std::mt19937 random(23);
  const text::FakeTokenizer tokenizer({"<end>"}, {});
  for (int round = 0; round < 400; ++round) {
    const Json schema = schemas.schema();
    SCOPED_TRACE(schema.dump());
    const auto constraint = json_compiler().begin(json_compiler().json_schema(schema));
    const std::string text = tokenizer.decode(draw(*constraint, tokenizer, 256, random, 80), false);
    ASSERT_TRUE(Json::accept(text)) << text;
    ASSERT_TRUE(Validator(schema).accepts(Json::parse(text))) << text;
  }
}

}  // namespace
}  // namespace danlu::grammar
