// `danlu serve` among clients that send anything and leave whenever they like: nobody is harmed by
// them and nothing stays behind. With DANLU_SLOW as many as an evening brings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cli/served_program.h"
#include "support/raw_http.h"
#include "support/shared_data.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

using Body = nlohmann::json;
using Random = std::mt19937;

/// A positive number in DANLU_SLOW says how many times as much.
size_t times_as_many(size_t usual, size_t slow) {
  const char* said = std::getenv("DANLU_SLOW");
  if (!said) return usual;
  return slow * static_cast<size_t>(std::max(1, std::atoi(said)));
}

std::vector<std::string> hostile_stories() {
  return {"--model",
          (shared_dir() / "data/models/stories260K/stories260K.gguf").string(),
          "--served_model_name",
          "stories",
          "--template",
          "default"};
}

size_t below(Random& random, size_t bound) { return random() % bound; }

std::string any_bytes(Random& random, size_t most) {
  std::string bytes(below(random, most + 1), '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

Body valid_body(Random& random, std::string* path) {
  switch (below(random, 5)) {
    case 0:
      *path = "/v1/completions";
      return {{"prompt", "Once"}, {"max_tokens", 2}, {"stop", {"x"}}, {"logprobs", 1}};
    case 1:
      *path = "/v1/chat/completions";
      return {{"messages", {{{"role", "user"}, {"content", "hello"}}}},
              {"max_tokens", 2},
              {"stream", true},
              {"logit_bias", {{"5", 1}}},
              {"response_format", {{"type", "json_object"}}}};
    case 2:
      *path = "/v1/chat/completions";
      return {{"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "a"}}}}}}},
              {"max_tokens", 2},
              {"tools",
               {{{"type", "function"},
                 {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}}}}};
    case 3:
      *path = "/v1/embeddings";
      return {{"input", {"a", "b"}}, {"encoding_format", "base64"}};
    default:
      *path = "/tokenize";
      return {{"prompt", "some text"}};
  }
}

Body odd_value(Random& random) {
  switch (below(random, 9)) {
    case 0:
      return nullptr;
    case 1:
      return -1;
    case 2:
      return 1e300;
    case 3:
      return std::string(below(random, 3000), '\xE9');  // no UTF-8
    case 4:
      return Body::array({Body::array({Body::object()})});
    case 5:
      return Body{{"a", Body::object()}};
    case 6:
      return 9223372036854775807;
    case 7:
      return false;
    default:
      return any_bytes(random, 20);
  }
}

std::string odd_text(const Body& body, Random& random) {
  std::string text = body.dump(-1, ' ', false, Body::error_handler_t::ignore);
  switch (below(random, 6)) {
    case 0:
      return std::string(1 + below(random, 5000), "[{\""[below(random, 3)]);
    case 1:
      return text.substr(0, below(random, text.size()));
    case 2:
      return text + any_bytes(random, 30);
    case 3:
      text.insert(below(random, text.size()), any_bytes(random, 8));
      return text;
    case 4:
      return any_bytes(random, 300);
    default:
      return text;
  }
}

/// A value of `body`, at any depth, becomes another.
void spoil(Body& body, Random& random) {
  Body* at = &body;
  while (at->is_structured() && !at->empty() && below(random, 3) > 0) {
    auto next = at->begin();
    std::advance(next, below(random, at->size()));
    at = &*next;
  }
  *at = odd_value(random);
}

std::string malformed_request(Random& random) {
  std::string path;
  Body body = valid_body(random, &path);
  const size_t kind = below(random, 8);
  if (kind < 3) spoil(body, random);
  const std::string text = kind < 5 ? odd_text(body, random) : body.dump();
  std::string request = raw_request("POST", path, text);
  switch (kind) {
    case 5: {
      const std::string length = "Content-Length: ";
      const size_t at = request.find(length);
      static const std::vector<std::string> kOdd = {
          "-1", "99999999999999999999", "1e3", "", "7, 8", "0x10", "3", "+4"};
      if (at != request.npos) {
        const size_t begin = at + length.size();
        request.replace(begin, request.find('\r', begin) - begin, kOdd[below(random, kOdd.size())]);
      }
      return request;
    }
    case 6: {
      const size_t end = request.find("\r\n") + 2;
      switch (below(random, 4)) {
        case 0:
          request.insert(end, "X: " + std::string(below(random, 100000), 'a') + "\r\n");
          break;
        case 1:
          for (size_t i = below(random, 300); i > 0; --i) request.insert(end, "A: b\r\n");
          break;
        case 2:
          request.insert(end, "Transfer-Encoding: chunked\r\n");
          break;
        default:
          request.insert(end, any_bytes(random, 40) + "\r\n");
      }
      return request;
    }
    case 7:
      for (size_t i = 1 + below(random, 6); i > 0; --i)
        request[below(random, request.size())] = static_cast<char>(random());
      return request.substr(0,
                            below(random, 4) == 0 ? below(random, request.size()) : request.npos);
    default:
      return request;
  }
}

int status_of(uint16_t port, const std::string& method, const std::string& path,
              const std::string& body) {
  RawClient client(port);
  client.send(raw_request(method, path, body));
  return client.response().status;
}

double gauge_of(uint16_t port, const std::string& name) {
  RawClient client(port);
  client.send(raw_request("GET", "/metrics", ""));
  const std::string metrics = client.response().body;
  const size_t at = metrics.find("\nvllm:" + name + "{");
  return at == metrics.npos ? -1 : std::stod(metrics.substr(metrics.find("} ", at) + 2));
}

/// A step may still be under way for those who have gone.
void expect_unharmed(uint16_t port) {
  for (int i = 0; i < 200 && gauge_of(port, "num_requests_running") != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(status_of(port, "GET", "/health", ""), 200);
  for (const char* name : {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"})
    EXPECT_EQ(gauge_of(port, name), 0) << name;
}

std::string greedy_answer(uint16_t port) {
  RawClient client(port);
  const Body body = {{"prompt", "Once upon"}, {"max_tokens", 30}, {"temperature", 0}};
  client.send(raw_request("POST", "/v1/completions", body.dump()));
  return Body::parse(client.response().body, nullptr, false)["choices"][0]["text"];
}

TEST(ServeHostile, MalformedRequestsAreAnsweredOrCutAndHarmNobody) {
  DANLU_REQUIRES_SHARED();
  const size_t requests = times_as_many(3000, 100000);
  constexpr size_t kClients = 4;
  ServedProgram server(hostile_stories());
  const std::string expected = greedy_answer(server.port());
  std::vector<std::atomic<size_t>> by_hundred(7);
  std::vector<std::thread> clients;
  for (size_t k = 0; k < kClients; ++k) {
    clients.emplace_back([&, k] {
      Random random(static_cast<unsigned>(k));
      for (size_t i = k; i < requests; i += kClients) {
        const std::string request = malformed_request(random);
        RawClient client(server.port());
        client.send(request);
        // What is not complete is waited for by the server, until it is told that no more comes.
        client.receive(100);
        client.end_sending();
        const RawResponse response = client.response();
        ++by_hundred.at(std::min<size_t>(6, static_cast<size_t>(response.status) / 100));
        EXPECT_NE(response.status, 500) << request << "\n" << response.body;
        if (i % 500 == k) {
          EXPECT_EQ(greedy_answer(server.port()), expected);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  // Some were valid all the same, most were told so, some had no end.
  EXPECT_GT(by_hundred[4], requests / 4);
  EXPECT_EQ(by_hundred[1] + by_hundred[3] + by_hundred[6], 0u);
  std::printf("%zu requests: closed %zu, 2xx %zu, 4xx %zu, 5xx %zu\n", requests,
              by_hundred[0].load(), by_hundred[2].load(), by_hundred[4].load(),
              by_hundred[5].load());
  EXPECT_EQ(greedy_answer(server.port()), expected);
  expect_unharmed(server.port());
  server.send(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
}

/// In KB.
int64_t resident_memory(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

/// A stream that is left at once, in its midst or at its end.
void one_stream(uint16_t port, Random& random, std::atomic<size_t>& lost) {
  const Body body = {{"prompt", "Once " + std::to_string(below(random, 1000))},
                     {"max_tokens", 1 + below(random, 100)},
                     {"n", 1 + below(random, 2)},
                     {"stream", true},
                     {"ignore_eos", true}};
  RawClient client(port);
  client.send(raw_request("POST", "/v1/completions", body.dump()));
  switch (below(random, 4)) {
    case 0:
      return;
    case 1:
      if (!client.receive_until("data: ")) ++lost;
      return;
    default:
      if (client.response().body.find("[DONE]") == std::string::npos) ++lost;
  }
}

TEST(ServeHostile, WhoLeavesAndComesBackLeavesNothingBehind) {
  DANLU_REQUIRES_SHARED();
  const size_t streams = times_as_many(400, 8000);
  constexpr size_t kClients = 24;
  ServedProgram server(hostile_stories());
  const std::string expected = greedy_answer(server.port());
  std::atomic<size_t> lost = 0;
  const auto run = [&](size_t count, unsigned seed) {
    std::vector<std::thread> clients;
    for (size_t k = 0; k < kClients; ++k) {
      clients.emplace_back([&, k] {
        Random random(seed + static_cast<unsigned>(k));
        for (size_t i = k; i < count; i += kClients) one_stream(server.port(), random, lost);
      });
    }
    for (std::thread& client : clients) client.join();
  };
  run(streams, 1);
  const int64_t first = resident_memory(server.pid());
  run(streams, 1000);
  const int64_t last = resident_memory(server.pid());
  std::printf("%zu streams: %lld KB, then %lld KB\n", streams, static_cast<long long>(first),
              static_cast<long long>(last));
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(greedy_answer(server.port()), expected);
  expect_unharmed(server.port());
  // What a short run takes anew is not lost: a long one shows that it stays at that.
  EXPECT_LT(last, first + first / (is_slow() ? 20 : 5));
}

}  // namespace
}  // namespace danlu::test
