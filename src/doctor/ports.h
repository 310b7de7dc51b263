// doctor/ports.h: whether a TCP port could be listened at.
#pragma once
#include <cstdint>

namespace danlu::doctor {

/// 0, or the errno of what is in the way: EADDRINUSE, EACCES. It is let go again at once.
int try_port(int64_t port);

}  // namespace danlu::doctor
