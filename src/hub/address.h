// hub/address.h: addresses of the hubs' pages and files, as guides print them for git and wget.
#pragma once
#include <optional>
#include <string>

#include "hub/repository.h"

namespace danlu::hub {

struct Address {
  Repository repository;
  std::string file;      ///< that it names; of a folder with "/" at its end; empty: all
  std::string endpoint;  ///< of a mirror that it names; empty: the hub's own
};

/// Parses https://HOST/[datasets/]ORG/NAME[.git][/resolve/REVISION/FILE] and its like (blob, raw,
/// tree). Nullopt if `text` is no address. Errors: UsageError if its host is neither a hub nor what
/// HF_ENDPOINT and MODELSCOPE_ENDPOINT name, or if it leads to no repository.
std::optional<Address> parse_address(const std::string& text);

}  // namespace danlu::hub
