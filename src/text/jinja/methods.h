// text/jinja/methods.h: methods of strings, lists, dicts and loops, and the global functions.
#pragma once
#include <string_view>

#include "text/jinja/objects.h"
#include "text/jinja/value.h"

namespace danlu::text::jinja {

using MethodFunction = Value (*)(Interpreter&, const Value& self, const Arguments&);

/// nullptr if values of this kind have no such method. Methods that change a list or dict exist and
/// fail when called: Hugging Face's sandbox refuses them too.
MethodFunction find_method(Kind kind, std::string_view name);
/// A method as a value of its own: {% set f = x.strip %}.
Value bind_method(MethodFunction function, const Value& self, const Value& name);

/// range, namespace, dict, raise_exception, …; nullptr if there is none of this name.
const Value* find_global(std::string_view name);

}  // namespace danlu::text::jinja
