#include "http/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "http/connection.h"
#include "http/live_exchange.h"

namespace danlu::http {
namespace {

using tcp = asio::ip::tcp;

asio::ssl::context tls_context(const TlsFiles& files) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  context.set_options(asio::ssl::context::no_sslv2 | asio::ssl::context::no_sslv3 |
                      asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 |
                      asio::ssl::context::single_dh_use);
  error_code error;
  context.use_certificate_chain_file(files.certificate.string(), error);
  if (error) {
    throw IoError(tr("[--ssl-certfile] {}: no certificate in PEM: {}", files.certificate.string(),
                     error.message()));
  }
  context.use_private_key_file(files.key.string(), asio::ssl::context::pem, error);
  if (error) {
    throw IoError(tr("[--ssl-keyfile] {}: no key in PEM that goes with the certificate: {}",
                     files.key.string(), error.message()));
  }
  return context;
}

std::vector<tcp::endpoint> endpoints_of(asio::io_context& io, const Settings& settings) {
  error_code error;
  const auto found = tcp::resolver(io).resolve(settings.host, std::to_string(settings.port),
                                               tcp::resolver::passive, error);
  if (error || found.empty()) {
    throw UsageError(
        tr("[--host] {}: no address of this machine: {}", settings.host, error.message()),
        tr("127.0.0.1 is for this machine alone, 0.0.0.0 for every network it is in"));
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) endpoints.push_back(entry.endpoint());
  return endpoints;
}

}  // namespace

int default_handler_threads() {
  return static_cast<int>(std::max(4U, std::thread::hardware_concurrency() / 4));
}

class Server::Impl {
 public:
  Impl(Settings settings, Router router)
      : parts_(std::make_shared<ServerParts>(std::move(settings), std::move(router))) {}

  void start() {
    if (parts_->settings.tls) tls_.emplace(tls_context(*parts_->settings.tls));
    std::vector<tcp::endpoint> endpoints = endpoints_of(parts_->io, parts_->settings);
    for (tcp::endpoint& endpoint : endpoints) {
      if (port_ != 0) endpoint.port(port_);
      listen(endpoint, endpoints.size() > 1);
    }
    work_.emplace(asio::make_work_guard(parts_->io));
    for (auto& listener : listeners_) accept(*listener);
    for (int i = 0; i < parts_->settings.io_threads; ++i)
      threads_.emplace_back([parts = parts_] { run_io(parts->io); });
  }

  bool drain(double drain_s) {
    if (threads_.empty()) return true;
    parts_->is_draining = true;
    for (const auto& listener : listeners_) {
      asio::post(listener->acceptor.get_executor(), [at = listener.get()] {
        error_code ignored;
        at->retry.cancel();
        at->acceptor.close(ignored);
      });
    }
    for (const auto& connection : connections()) connection->post_close_if_idle();
    const double end_s = steady_now_s() + drain_s;
    while (parts_->num_exchanges > 0 && steady_now_s() < end_s) sleep_briefly();
    return parts_->num_exchanges == 0;
  }

  bool stop(double drain_s) {
    if (threads_.empty()) return true;
    const bool is_clean = drain(drain_s);
    for (auto left = connections(); !left.empty(); left = connections()) {
      for (const auto& connection : left) connection->post_cut();
      left.clear();
      sleep_briefly();
    }
    parts_->handlers.join();
    parts_->prompt_handlers.join();
    parts_->slow_handlers.join();
    parts_->large_handlers.join();
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return is_clean;
  }

  const Settings& settings() const { return parts_->settings; }
  uint16_t port() const { return port_; }
  ServerCounts counts() const {
    const std::lock_guard lock(parts_->mutex);
    return {.connections = parts_->connections.size(), .exchanges = parts_->num_exchanges};
  }

 private:
  /// One address. What is done with it is done on a strand of its own.
  struct Listener {
    explicit Listener(asio::io_context& io)
        : acceptor(asio::make_strand(io)), retry(acceptor.get_executor()) {}
    tcp::acceptor acceptor;
    asio::steady_timer retry;
  };

  /// A connection for which there is no memory ends; the others go on.
  static void run_io(asio::io_context& io) {
    for (bool is_over = false; !is_over;) {
      try {
        io.run();
        is_over = true;
      } catch (const std::bad_alloc&) {
        log::warning("no memory is left for a connection, which was cut");
      }
    }
  }

  static void sleep_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

  void listen(const tcp::endpoint& endpoint, bool is_one_of_several) {
    auto listener = std::make_unique<Listener>(parts_->io);
    tcp::acceptor* const acceptor = &listener->acceptor;
    error_code error;
    acceptor->open(endpoint.protocol(), error);
    // A machine may have no IPv6 though its name has such an address.
    if (error && is_one_of_several && endpoint.address().is_v6()) return;
    if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
    if (!error && is_one_of_several && endpoint.address().is_v6())
      acceptor->set_option(asio::ip::v6_only(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (error == boost::system::errc::address_not_available && is_one_of_several &&
        endpoint.address().is_v6())
      return;
    if (!error) acceptor->listen(1024, error);
    if (error) {
      throw IoError(tr("[--port] cannot listen on {}:{}: {}", settings().host, endpoint.port(),
                       error.message()),
                    tr("another program may have this port: --port 0 takes one that is free"));
    }
    port_ = acceptor->local_endpoint().port();
    listeners_.push_back(std::move(listener));
  }

  void accept(Listener& at) {
    at.acceptor.async_accept(asio::make_strand(parts_->io),
                             [this, &at](const error_code& error, tcp::socket socket) {
                               if (parts_->is_draining) return;
                               if (!error) {
                                 take(std::move(socket));
                                 return accept(at);
                               }
                               // No descriptors are left: some may be, later.
                               at.retry.expires_after(std::chrono::milliseconds(100));
                               at.retry.async_wait([this, &at](const error_code&) {
                                 if (!parts_->is_draining) accept(at);
                               });
                             });
  }

  void take(tcp::socket socket) {
    auto connection = std::make_shared<Connection>(parts_, std::move(socket), tls());
    {
      const std::lock_guard lock(parts_->mutex);
      if (parts_->connections.size() < settings().max_connections) {
        parts_->connections.emplace(connection.get(), connection);
      } else {
        connection->turn_away();
        return;
      }
    }
    connection->post_start();
  }

  asio::ssl::context* tls() { return tls_ ? &*tls_ : nullptr; }

  std::vector<std::shared_ptr<Connection>> connections() const {
    const std::lock_guard lock(parts_->mutex);
    std::vector<std::shared_ptr<Connection>> found;
    for (const auto& [address, weak] : parts_->connections) {
      if (auto connection = weak.lock()) found.push_back(std::move(connection));
    }
    return found;
  }

  const std::shared_ptr<ServerParts> parts_;
  std::optional<asio::ssl::context> tls_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::vector<std::thread> threads_;
  uint16_t port_ = 0;
};

Server::Server(Settings settings, Router router)
    : impl_(std::make_unique<Impl>(std::move(settings), std::move(router))) {}
Server::~Server() { impl_->stop(0); }

void Server::start() { impl_->start(); }
uint16_t Server::port() const { return impl_->port(); }
bool Server::drain(double drain_s) { return impl_->drain(drain_s); }
bool Server::stop(double drain_s) { return impl_->stop(drain_s); }
ServerCounts Server::counts() const { return impl_->counts(); }

std::string Server::url() const {
  const std::string& host = impl_->settings().host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", impl_->settings().tls ? "https" : "http", is_v6 ? "[" : "",
                     host, is_v6 ? "]" : "", port());
}

}  // namespace danlu::http
