// text/jinja/operators.h: Python's operators and look-ups on values.
#pragma once
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace danlu::text::jinja {

/// Errors of all: EvalError with Python's wording. `left` may be reused for the result.
Value binary_operation(Interpreter& interpreter, BinaryOp op, Value left, const Value& right);
bool compare(CompareOp op, const Value& left, const Value& right);
/// `needle in haystack`.
bool contains(const Value& haystack, const Value& needle);

/// object.name: attributes and methods first, then items. Undefined if there is neither.
/// Errors: EvalError if object is undefined.
Value get_attribute(const Value& object, const Value& name);
/// object[key]: items first, then attributes.
Value get_item(const Value& object, const Value& key);
/// object[start:stop:step], each none for the default.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step);

/// text % values, as str.__mod__: %s %r %d %i %f %e %g %x %X %o %c %%, with flags, width,
/// precision. Charges what it makes.
Value printf_format(Interpreter& interpreter, std::string_view text, const ValueList& values,
                    const Value* mapping);

/// text.replace(from, to, limit), all of them below 0. Charged before it is made.
Value replaced(Interpreter& interpreter, std::string_view text, std::string_view from,
               std::string_view to, int64_t limit);

}  // namespace danlu::text::jinja
