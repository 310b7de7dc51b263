// data/readers/json_events.h: the events of a JSON parser, for those who need few of them.
#pragma once
#include <nlohmann/json.hpp>

namespace danlu::data {

/// Accepts every event; a reader overrides those it looks at. parse_error is left to it.
template <typename JsonType>
struct AcceptEvents : nlohmann::json_sax<JsonType> {
  using Base = nlohmann::json_sax<JsonType>;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Base::number_integer_t) override { return true; }
  bool number_unsigned(typename Base::number_unsigned_t) override { return true; }
  bool number_float(typename Base::number_float_t, const typename Base::string_t&) override {
    return true;
  }
  bool string(typename Base::string_t&) override { return true; }
  bool binary(typename Base::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(typename Base::string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
};

}  // namespace danlu::data
