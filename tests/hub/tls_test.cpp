// TLS against openssl's own server: certificates decide.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/free_port.h"
#include "hub/hub_test.h"
#include "hub/transport.h"

namespace danlu::hub {
namespace {

namespace fs = std::filesystem;

/// `openssl s_server -HTTP` sends files as whole answers, by the path that is asked for.
class Tls : public HubTest {
 protected:
  void SetUp() override {
    HubTest::SetUp();
    fs::create_directories(site_);
    const std::string make =
        "cd '" + folder.path().string() +
        "' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
        "/CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem "
        ">/dev/null 2>&1";
    ASSERT_EQ(std::system(make.c_str()), 0);
    for (const char* target : {"/api/models/org/tiny/revision/main?blobs=true"}) put(target);
    for (const auto& [name, file] : fake.files)
      put("/org/tiny/resolve/" + fake.commit + "/" + name);
    port_ = std::to_string(free_port().value());
    server_ = ::fork();
    if (server_ == 0) {
      if (::chdir(site_.c_str()) != 0) ::_exit(1);
      const std::string key = (folder / "key.pem").string(), cert = (folder / "cert.pem").string();
      ::execlp("openssl", "openssl", "s_server", "-quiet", "-HTTP", "-accept", port_.c_str(),
               "-key", key.c_str(), "-cert", cert.c_str(), nullptr);
      ::_exit(1);
    }
  }
  void TearDown() override {
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
    ::unsetenv("SSL_CERT_FILE");
  }

  void put(const std::string& target) {
    HubRequest asked{.method = "GET",
                     .target = target,
                     .body = {},
                     .path = target.substr(0, target.find('?')),
                     .headers = {}};
    const HubAnswer answer = fake.honest(asked);
    const fs::path file = site_ / target.substr(1);
    fs::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out << "HTTP/1.0 200 OK\r\nContent-Length: " << answer.body.size() << "\r\n";
    for (const auto& [name, value] : answer.headers) out << name << ": " << value << "\r\n";
    out << "\r\n" << answer.body;
  }

  DownloadRequest over_tls() const {
    DownloadRequest out = request();
    out.client.endpoint = "https://localhost:" + port_;
    out.client.max_retries = 8;  // until the server listens
    out.client.backoff_s = 0.05;
    out.workers = 1;  // it serves one at a time
    return out;
  }

  const fs::path site_ = folder / "site";
  std::string port_;
  pid_t server_ = -1;
};

TEST_F(Tls, ACertificateThatNobodySignedIsRefusedWithTheRemedy) {
  ExitCode code = ExitCode::kSuccess;
  EXPECT_THAT(error_of(over_tls(), &code),
              AllOf(HasSubstr("certificate"), HasSubstr("SSL_CERT_FILE")));
  EXPECT_EQ(code, ExitCode::kComm);
}

TEST_F(Tls, OneThatIsNamedIsTrusted) {
  ::setenv("SSL_CERT_FILE", (folder / "cert.pem").c_str(), 1);
  expect_whole(download(over_tls()).directory);
}

}  // namespace
}  // namespace danlu::hub
