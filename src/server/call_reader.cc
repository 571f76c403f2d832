#include "server/call_reader.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/request_fields.h"

namespace tessera {
namespace {

using Kind = ChatPiece::Kind;

constexpr std::string_view kFunctionBegin = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameterBegin = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kKeyBegin = "<arg_key>";
constexpr std::string_view kKeyEnd = "</arg_key>";
constexpr std::string_view kValueBegin = "<arg_value>";
constexpr std::string_view kValueEnd = "</arg_value>";
constexpr std::string_view kArgsMark = "[ARGS]";
constexpr std::string_view kIdMark = "[CALL_ID]";

// What begins no call within so many bytes is none, or is told once it is whole.
constexpr size_t kHeadBytesMax = 4096;

// Walks along a text of which more may come.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size()); }
  /// False with is_short(): it may yet be there.
  bool take(std::string_view word) {
    const std::string_view rest = text_.substr(at_, word.size());
    if (rest == word) {
      at_ += word.size();
      return true;
    }
    is_short_ = is_short_ || word.starts_with(rest);
    return false;
  }
  /// Up to one of these characters. The same.
  std::optional<std::string_view> take_until(std::string_view ends) {
    const size_t end = text_.find_first_of(ends, at_);
    if (end == std::string_view::npos) {
      is_short_ = true;
      return std::nullopt;
    }
    const std::string_view taken = text_.substr(at_, end - at_);
    at_ = end;
    return taken;
  }
  [[nodiscard]] bool is_at_end() const { return at_ == text_.size(); }
  [[nodiscard]] char next() const { return text_[at_]; }
  [[nodiscard]] size_t at() const { return at_; }
  [[nodiscard]] bool is_short() const { return is_short_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  bool is_short_ = false;
};

// Without the newline that templates put on each side.
std::string_view without_newlines(std::string_view text) {
  text.remove_prefix(text.starts_with('\n') ? 1 : 0);
  text.remove_suffix(text.ends_with('\n') ? 1 : 0);
  return text;
}

}  // namespace

struct CallReader::Head {
  enum class Found { kNo, kMaybe, kYes };
  Found found = Found::kNo;
  Form form = Form::kObject;
  bool is_list = false;
  std::string name;
  size_t n_bytes = 0;  // before the arguments
};

bool is_tool_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

void CallReader::start(std::string name) {
  state_ = State::kHead;
  form_ = Form::kNamed;
  is_list_ = is_later_ = false;
  name_ = std::move(name);
  name_end_ = value_begin_ = 0;
  search_.reset();
}

bool CallReader::read(std::string& held, bool is_end, std::vector<ChatPiece>& pieces) {
  while (state_ != State::kDone && step(held, is_end, pieces)) {
  }
  if (is_end && state_ != State::kDone) {
    held.clear();  // of a call that was cut off
    state_ = State::kDone;
  }
  return state_ == State::kDone;
}

// False: more text is needed.
bool CallReader::step(std::string& held, bool is_end, std::vector<ChatPiece>& pieces) {
  switch (state_) {
    case State::kHead: return read_head(held, is_end, pieces);
    case State::kArguments: return read_arguments(held, pieces);
    case State::kRest: {  // of the object around the arguments
      const size_t n = scan_json(held, 0);
      held.erase(0, n);
      state_ = n == std::string::npos ? State::kRest : is_list_ ? State::kBetween : State::kBehind;
      return n != std::string::npos;
    }
    case State::kBetween: return read_between(held, is_end);
    case State::kBehind: return read_behind(held);
    case State::kTags: return read_tags(held, pieces);
    case State::kWhole: return read_whole(held, is_end, pieces);
    case State::kDone: break;
  }
  return false;
}

bool CallReader::is_valid(const std::string& name) const {
  return is_tool_name(name) && (!begin_.empty() || tools_->names.contains(name));
}

CallReader::Head CallReader::head_of(std::string_view text) const {
  using Found = Head::Found;
  Head head;
  Cursor cursor(text);
  const auto told = [&](bool is_head) {
    head.n_bytes = cursor.at();
    head.found = is_head ? Found::kYes : cursor.is_short() ? Found::kMaybe : Found::kNo;
    return head;
  };
  // The arguments, which are to be an object, begin here.
  const auto object = [&] {
    cursor.skip_blanks();
    const size_t at = cursor.at();
    told(cursor.take("{"));
    head.n_bytes = at;
    return head;
  };
  cursor.skip_blanks();
  if (cursor.is_at_end()) {
    head.found = Found::kMaybe;
    return head;
  }
  if (!name_.empty()) {
    head.form = Form::kNamed;
    head.name = name_;
    head.found = cursor.next() == '{' ? Found::kYes : Found::kNo;
    head.n_bytes = cursor.at();
    return head;
  }
  if (cursor.next() == '<') {
    head.form = Form::kFunctionTags;
    if (!cursor.take(kFunctionBegin)) {
      return told(false);
    }
    const auto name = cursor.take_until(">\n<");
    head.name = trimmed(name.value_or(""));
    return told(name && cursor.take(">") && is_valid(head.name));
  }
  if (cursor.next() == '[' || cursor.next() == '{') {
    head.is_list = is_later_;
    if (!is_later_ && cursor.next() == '[') {
      head.is_list = cursor.take("[");
      cursor.skip_blanks();
    }
    const auto key = [&](std::string_view quoted) {
      cursor.skip_blanks();
      if (!cursor.take(quoted)) {
        return false;
      }
      cursor.skip_blanks();
      return cursor.take(":");
    };
    if (!cursor.take("{") || !key("\"name\"")) {
      return told(false);
    }
    cursor.skip_blanks();
    if (!cursor.take("\"")) {
      return told(false);
    }
    const auto name = cursor.take_until("\"\\\n");
    head.name = name.value_or("");
    if (!name || !is_valid(head.name) || !cursor.take("\"")) {
      return told(false);
    }
    cursor.skip_blanks();
    if (!cursor.take(",") || (!key("\"arguments\"") && !key("\"parameters\""))) {
      return told(false);
    }
    return object();
  }
  // A bare name.
  const auto name = cursor.take_until("<[{");
  head.name = trimmed(name.value_or(""));
  if (!name) {
    head.found = is_tool_name(trimmed(text)) ? Found::kMaybe : Found::kNo;
    return head;
  }
  if (!is_valid(head.name)) {
    return head;
  }
  if (cursor.next() == '<') {
    head.form = Form::kArgTags;
    const size_t at = cursor.at();
    const bool is_head =
        cursor.take(kKeyBegin) || (!end_.empty() && tools_->names.contains(head.name) && cursor.take(end_));
    told(is_head);
    head.n_bytes = at;
    return head;
  }
  head.form = Form::kNamed;
  if (cursor.next() == '[' && !cursor.take(kArgsMark)) {
    if (!cursor.take(kIdMark) || !cursor.take_until("[{") || (cursor.next() == '[' && !cursor.take(kArgsMark))) {
      return told(false);
    }
  }
  return object();
}

bool CallReader::read_head(std::string& held, bool is_end, std::vector<ChatPiece>& pieces) {
  const Head head = head_of(std::string_view(held).substr(0, kHeadBytesMax));
  if (head.found == Head::Found::kMaybe && held.size() < kHeadBytesMax && !is_end) {
    return false;
  }
  if (head.found != Head::Found::kYes) {
    state_ = State::kWhole;
    return true;
  }
  held.erase(0, head.n_bytes);
  form_ = head.form;
  is_list_ = head.is_list;
  name_ = head.name;
  pieces.push_back({Kind::kCall, name_});
  parameters_.clear();
  depth_ = form_ == Form::kObject ? 1 : 0;
  in_string_ = escaped_ = false;
  state_ = form_ == Form::kFunctionTags || form_ == Form::kArgTags ? State::kTags : State::kArguments;
  return true;
}

size_t CallReader::scan_json(std::string_view text, int open) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && --depth_ <= open) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

bool CallReader::read_arguments(std::string& held, std::vector<ChatPiece>& pieces) {
  const size_t end = scan_json(held, form_ == Form::kObject ? 1 : 0);
  if (const size_t n = std::min(end, held.size()); n > 0) {
    pieces.push_back({Kind::kArguments, held.substr(0, n)});
  }
  held.erase(0, end);
  if (end == std::string::npos) {
    return false;
  }
  pieces.push_back({Kind::kCallEnd, ""});
  state_ = form_ == Form::kObject ? State::kRest : State::kBehind;
  return true;
}

// Behind an object of a list: another, or the list's end.
bool CallReader::read_between(std::string& held, bool is_end) {
  held.erase(0, std::min(held.find_first_not_of(kBlanks), held.size()));
  if (held.empty()) {
    return false;
  }
  if (held[0] == ',') {
    held.erase(0, 1);
    name_.clear();
    is_later_ = true;
    state_ = State::kHead;
    return true;
  }
  held.erase(0, held[0] == ']' ? 1 : 0);
  state_ = State::kBehind;
  return !is_end || !held.empty();
}

// To the end mark, if there is one.
bool CallReader::read_behind(std::string& held) {
  const size_t at = end_.empty() ? 0 : held.find(end_);
  if (at == std::string::npos) {
    held.erase(0, held.size() - held_back(held, std::array<std::string_view, 1>{end_}));
    return false;
  }
  held.erase(0, at + end_.size());
  state_ = State::kDone;
  return true;
}

void CallReader::add_parameter(const std::string& name, std::string_view written, std::vector<ChatPiece>& pieces) {
  if (!parameters_.insert(name).second) {
    return;  // twice: the first counts
  }
  const auto found = tools_->strings.find({name_, name});
  Json value = std::string(written);
  const bool is_plain = found != tools_->strings.end() && found->second == ChatTools::Text::kPlain;
  if (auto json = is_plain ? Result<Json>(value) : parse_json(written); json.ok()) {
    const bool must_be_text = found != tools_->strings.end();
    value = must_be_text && !json->is_string() ? value : *json;
  }
  std::string text = parameters_.size() == 1 ? "{" : ",";
  text += dump_json(name) + ":" + dump_json(value);
  pieces.push_back({Kind::kArguments, std::move(text)});
}

bool CallReader::find_once(std::string_view held, std::string_view mark, size_t from, size_t& found) {
  if (found == 0) {
    const size_t at = search_.find(held, mark, from);
    found = at == std::string_view::npos ? 0 : at;
  }
  return found != 0;
}

// <parameter=NAME>VALUE</parameter>, or <arg_key>NAME</arg_key><arg_value>VALUE</arg_value>, until the call's end.
bool CallReader::read_tags(std::string& held, std::vector<ChatPiece>& pieces) {
  const bool is_function = form_ == Form::kFunctionTags;
  const std::array<std::string_view, 3> marks = {is_function ? kParameterBegin : kKeyBegin, end_,
                                                 is_function ? kFunctionEnd : std::string_view()};
  const FoundMark found = held.starts_with(marks[0]) ? FoundMark{0, 0} : find_first(held, marks);
  if (found.at == std::string::npos) {
    held.erase(0, held.size() - held_back(held, marks));
    return false;
  }
  held.erase(0, found.at);
  if (found.mark != 0) {
    pieces.push_back({Kind::kArguments, parameters_.empty() ? "{}" : "}"});
    pieces.push_back({Kind::kCallEnd, ""});
    state_ = State::kBehind;
    return true;
  }
  const size_t name = marks[0].size();
  const std::string_view name_end = is_function ? std::string_view(">") : kKeyEnd;
  if (!find_once(held, name_end, name, name_end_)) {
    return false;
  }
  size_t value = name_end_ + name_end.size();
  if (!is_function) {
    if (!find_once(held, kValueBegin, value, value_begin_)) {
      return false;
    }
    value = value_begin_ + kValueBegin.size();
  }
  const std::string_view value_end = is_function ? kParameterEnd : kValueEnd;
  const size_t end = search_.find(held, value_end, value);
  if (end == std::string::npos) {
    return false;
  }
  add_parameter(std::string(trimmed(std::string_view(held).substr(name, name_end_ - name))),
                without_newlines(std::string_view(held).substr(value, end - value)), pieces);
  held.erase(0, end + value_end.size());
  name_end_ = value_begin_ = 0;
  return true;
}

// What does not begin as a call usually does: JSON in another order, a name alone, or no call.
bool CallReader::read_whole(std::string& held, bool is_end, std::vector<ChatPiece>& pieces) {
  const std::string& mark = end_.empty() ? begin_ : end_;
  const size_t end = mark.empty() ? std::string::npos : search_.find(held, mark, 0);
  if (end == std::string::npos && !is_end) {
    return false;
  }
  const size_t n = std::min(end, held.size());
  const std::string body = held.substr(0, n);
  const bool has_end = !end_.empty() && end != std::string::npos;
  held.erase(0, n + (has_end ? end_.size() : 0));
  state_ = State::kDone;
  std::vector<ChatPiece> calls = calls_of((is_later_ ? "[" : "") + std::string(trimmed(body)));
  if (calls.empty()) {
    pieces.push_back({Kind::kContent, (is_later_ ? "" : begin_) + body + (has_end ? end_ : "")});
  }
  std::ranges::move(calls, std::back_inserter(pieces));
  return true;
}

std::vector<ChatPiece> CallReader::calls_of(std::string_view body) const {
  std::vector<ChatPiece> calls;
  const auto add = [&](const std::string& name, std::string arguments) {
    calls.push_back({Kind::kCall, name});
    calls.push_back({Kind::kArguments, std::move(arguments)});
    calls.push_back({Kind::kCallEnd, ""});
  };
  const auto json = parse_json(body);
  if (!json.ok()) {
    if (const std::string name(body); tools_->names.contains(name)) {
      add(name, "{}");
    }
    return calls;
  }
  const bool is_list = json->is_array();
  for (size_t i = 0; i < (is_list ? json->size() : 1); ++i) {
    const Json& one = is_list ? (*json)[i] : *json;
    const auto name = one.is_object() ? one.find("name") : one.end();
    if (!one.is_object() || name == one.end() || !name->is_string() || !is_valid(name->get<std::string>())) {
      return {};
    }
    std::string arguments = "{}";
    for (const char* key : {"arguments", "parameters"}) {
      if (const auto found = one.find(key); found != one.end() && !found->is_null()) {
        arguments = found->is_string() ? found->get<std::string>() : dump_json(*found);
      }
    }
    add(name->get<std::string>(), std::move(arguments));
  }
  return calls;
}

}  // namespace tessera
