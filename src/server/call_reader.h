#pragma once
// Reads one tool call, or a list of them, out of an answer while it is written.
//
// A call begins once its name is complete and valid and its arguments have begun: from then on they are passed on as
// they come, as the model writes them, JSON in pieces of any size, tagged parameters one at a time. Whatever follows,
// it stays a call: broken arguments are the client's to refuse. Before that nothing is passed on, and what turns out to
// be no call is content, marks included. JSON with its keys in another order is told once it is whole. Where no mark
// announces a call (Llama 3 answers with bare JSON), only names of the request's tools are valid.
// What is read does not depend on the pieces in which the text comes, and the work is linear in the text.

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/chat_text.h"

namespace tessera {

struct ChatPiece {
  enum class Kind {
    kReasoning,
    kContent,
    kCall,       // a tool call begins; text: the tool's name
    kArguments,  // more of its arguments' JSON
    kCallEnd     // its arguments are complete. A call without this was cut off
  };
  Kind kind = Kind::kContent;
  std::string text;
};

/// What readers know of a request's tools.
struct ChatTools {
  /// How a parameter that the schema calls a string stands between tags; others are JSON.
  enum class Text { kPlain, kQuoted /* as a JSON string, where it is one */ };
  std::set<std::string> names;
  std::map<std::pair<std::string, std::string>, Text> strings;  // by (tool, parameter)
};

/// Letters, digits and _ - . : / are what tools are called by.
bool is_tool_name(std::string_view text);

class CallReader {
 public:
  /// tools: outlives this. begin, end: marks around a call; begin may be empty (nothing announces it), and so may end:
  /// the call ends with its JSON, and one that has to be whole ends before the next begin.
  CallReader(const ChatTools& tools, std::string begin, std::string end)
      : tools_(&tools), begin_(std::move(begin)), end_(std::move(end)) {}

  /// Behind the begin mark; with a name, only the arguments are left to read (they end where their JSON ends).
  void start(std::string name = {});

  /// Takes off `held` what is certain, and adds what it says to pieces. is_end: no more text comes. True: done, what
  /// is left in held is no part of the call.
  bool read(std::string& held, bool is_end, std::vector<ChatPiece>& pieces);

  /// Bytes in which marks were looked for.
  [[nodiscard]] uint64_t n_bytes_searched() const { return search_.n_bytes(); }

 private:
  enum class State { kHead, kArguments, kRest, kBetween, kBehind, kTags, kWhole, kDone };
  enum class Form { kObject, kNamed, kFunctionTags, kArgTags };

  struct Head;
  [[nodiscard]] Head head_of(std::string_view text) const;
  bool step(std::string& held, bool is_end, std::vector<ChatPiece>& pieces);
  bool read_head(std::string& held, bool is_end, std::vector<ChatPiece>& pieces);
  bool read_arguments(std::string& held, std::vector<ChatPiece>& pieces);
  bool read_between(std::string& held, bool is_end);
  bool read_behind(std::string& held);
  bool read_tags(std::string& held, std::vector<ChatPiece>& pieces);
  bool read_whole(std::string& held, bool is_end, std::vector<ChatPiece>& pieces);
  void add_parameter(const std::string& name, std::string_view written, std::vector<ChatPiece>& pieces);
  [[nodiscard]] bool is_valid(const std::string& name) const;
  [[nodiscard]] std::vector<ChatPiece> calls_of(std::string_view body) const;
  /// Bytes up to the one that closes all but `open` brackets; npos: not yet. Goes on where it was.
  size_t scan_json(std::string_view text, int open);
  /// Whether `found` is where the mark begins, at `from` or later; 0: it has yet to be found.
  bool find_once(std::string_view held, std::string_view mark, size_t from, size_t& found);

  const ChatTools* tools_;
  std::string begin_;
  std::string end_;
  State state_ = State::kDone;
  Form form_ = Form::kObject;
  bool is_list_ = false;   // [{...}, ...]
  bool is_later_ = false;  // in a list, behind the first
  std::string name_;
  std::set<std::string> parameters_;  // of a tagged call, so far
  size_t name_end_ = 0;               // of the parameter that held begins with; 0: not found yet
  size_t value_begin_ = 0;            // the mark before its value; the same
  MarkSearch search_;
  int depth_ = 0;  // of brackets
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace tessera
