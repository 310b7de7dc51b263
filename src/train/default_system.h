// train/default_system.h: gives conversations without a system message the one of --system.
#pragma once
#include <memory>
#include <string>

#include "text/conversation.h"

namespace danlu::train {

/// `inner` itself if `system` is empty.
std::shared_ptr<const text::ChatEncoder> with_default_system(
    std::shared_ptr<const text::ChatEncoder> inner, const std::string& system);

}  // namespace danlu::train
