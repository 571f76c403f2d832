#pragma once
// A client for tests of the server's sockets.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace tessera {

/// The whole reply to a GET of `path` from a server on this machine; the connection is closed behind it. A reply that
/// does not end is given up, and a failure of the test.
inline std::string http_get(const std::string& url, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = {.tv_sec = 5, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string reply;
  char part[4096];
  ssize_t n = 0;
  while ((n = recv(fd, part, sizeof part, 0)) > 0) {
    reply.append(part, static_cast<size_t>(n));
  }
  EXPECT_EQ(n, 0) << "the reply did not end";
  close(fd);
  return reply;
}

}  // namespace tessera
