// text/jinja/tests.h: the tests templates can use after `is`, by name.
#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace danlu::text::jinja {

/// nullptr if there is no such test.
TestFunction find_test(std::string_view name);

}  // namespace danlu::text::jinja
