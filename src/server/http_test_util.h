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

/// A connection to a server on this machine, on which `text` was sent.
inline int http_send(const std::string& url, const std::string& text) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = {.tv_sec = 60, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(send(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return fd;
}

/// All that comes until the server closes; closes fd. What does not end is given up, and a failure of the test.
inline std::string http_read(int fd) {
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

/// The whole reply to a GET of `path`; the connection is closed behind it.
inline std::string http_get(const std::string& url, const std::string& path) {
  return http_read(http_send(url, "GET " + path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
}

}  // namespace tessera
