// Rules to Lark.
//
// llguidance reads a text by a lexer first. If each character were a terminal, JSON would cost a
// hundred times as much, and be too much. So a rule that leads to no rule but such is a terminal,
// where that changes nothing: a terminal is read as far as it goes, so nothing that it can go on
// with may follow it. Elsewhere it is read character by character.
#include "lmtp/constraint/gbnf.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "gbnf_rules.h"

namespace lmtp::constraint {
namespace {

using gbnf::Bytes;
using gbnf::kNoBound;
using gbnf::Node;
using gbnf::Rules;

// Of the texts of a rule, or of a part of one.
struct Shape {
  bool is_regular = true;  // leads to no rule that leads back, and to no token
  bool may_be_empty = false;
  Bytes first = {};  // bytes that one begins with
  Bytes more = {};   // that a whole one can go on with; some more where that is hard to say
  Bytes all = {};    // of all its characters

  bool operator==(const Shape&) const = default;
};

using Shapes = std::map<std::string, Shape, std::less<>>;

Shape shape_of(const Node& node, const Shapes& shapes);

Shape in_sequence(const Shape& a, const Shape& b) {
  Shape both{a.is_regular && b.is_regular, a.may_be_empty && b.may_be_empty, a.first, b.more,
             a.all | b.all};
  if (a.may_be_empty) both.first |= b.first;
  if (b.may_be_empty) both.more |= a.more | b.first;
  // Where the first ends is not certain.
  if ((a.more & b.first).any()) both.more = both.all;
  return both;
}

Shape repeated(const Node& node, const Shapes& shapes) {
  Shape shape = shape_of(node.children.front(), shapes);
  shape.may_be_empty = shape.may_be_empty || node.least == 0;
  if (node.most == 0) return Shape{.is_regular = shape.is_regular, .may_be_empty = true};
  if (node.most == 1) return shape;
  const bool is_certain = (shape.more & shape.first).none();
  shape.more = is_certain ? shape.more | shape.first : shape.all;
  return shape;
}

Shape shape_of(const Node& node, const Shapes& shapes) {
  switch (node.kind) {
    case Node::Kind::kTerminal:
      return {true, node.first.none(), node.first, {}, node.all};
    case Node::Kind::kToken:
      return {.is_regular = false};
    case Node::Kind::kRule:
      return shapes.find(node.text)->second;
    case Node::Kind::kRepeat:
      return repeated(node, shapes);
    case Node::Kind::kSequence: {
      Shape shape{.may_be_empty = true};
      for (const Node& child : node.children) shape = in_sequence(shape, shape_of(child, shapes));
      return shape;
    }
    case Node::Kind::kChoice: {
      Shape any;
      bool is_certain = true;
      for (const Node& child : node.children) {
        const Shape one = shape_of(child, shapes);
        is_certain = is_certain && (any.first & one.first).none();
        any = {any.is_regular && one.is_regular, any.may_be_empty || one.may_be_empty,
               any.first | one.first, any.more | one.more, any.all | one.all};
      }
      if (any.may_be_empty) any.more |= any.first;
      if (!is_certain) any.more = any.all;
      return any;
    }
  }
  return {};
}

// From rules that lead to none up: until then a rule counts as one that leads back.
Shapes find_shapes(const Rules& rules) {
  Shapes shapes;
  for (const auto& [name, rule] : rules) shapes[name].is_regular = false;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const auto& [name, rule] : rules) {
      const Shape shape = shape_of(rule.body, shapes);
      has_changed = has_changed || shape != shapes[name];
      shapes[name] = shape;
    }
  }
  return shapes;
}

using Follows = std::map<std::string, Bytes, std::less<>>;

// Notes what follows each rule that `node` names; `behind` it comes.
void add_follows(const Node& node, const Bytes& behind, const Shapes& shapes, Follows& follows) {
  switch (node.kind) {
    case Node::Kind::kRule:
      follows[node.text] |= behind;
      return;
    case Node::Kind::kSequence: {
      Bytes next = behind;
      for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
        add_follows(*child, next, shapes, follows);
        const Shape shape = shape_of(*child, shapes);
        next = shape.may_be_empty ? next | shape.first : shape.first;
      }
      return;
    }
    case Node::Kind::kRepeat: {
      const Bytes first = shape_of(node.children.front(), shapes).first;
      add_follows(node.children.front(), node.most == 1 ? behind : behind | first, shapes, follows);
      return;
    }
    default:
      for (const Node& child : node.children) add_follows(child, behind, shapes, follows);
  }
}

Follows find_follows(const Rules& rules, const Shapes& shapes) {
  Follows follows;
  for (bool has_changed = true; has_changed;) {
    const Follows before = follows;
    for (const auto& [name, rule] : rules) {
      add_follows(rule.body, Bytes(follows[name]), shapes, follows);
    }
    has_changed = follows != before;
  }
  return follows;
}

class Writer {
 public:
  Writer(const Rules& rules, const Shapes& shapes)
      : rules_(rules), shapes_(shapes), follows_(find_follows(rules, shapes)) {}

  std::string write() {
    out_ = "%llguidance {}\n";
    for (const auto& [name, rule] : rules_) {
      const bool is_regular = shapes_.find(name)->second.is_regular;
      if (is_regular && name != "root") write_rule(name, rule.body, true);
      if (name == "root" || !is_terminal(name)) write_rule(name, rule.body, false);
    }
    return std::move(out_);
  }

 private:
  bool is_terminal(const std::string& name) const {
    const Shape& shape = shapes_.find(name)->second;
    return shape.is_regular && (shape.more & follows_.find(name)->second).none();
  }

  // Lark's names are of lower case, and of upper case where they are of terminals.
  std::string name_of(const std::string& name, bool in_terminal) const {
    if (name == "root" && !in_terminal) return "start";
    std::string lark =
        (in_terminal ? "T" : "r") + std::to_string(rules_.find(name)->second.order) + "_";
    for (const char c : name) {
      const bool is_upper = c >= 'A' && c <= 'Z';
      const bool is_lower = c >= 'a' && c <= 'z';
      const bool turns = (is_upper && !in_terminal) || (is_lower && in_terminal);
      lark += turns ? static_cast<char>(c ^ 0x20) : c;
    }
    return lark;
  }

  void write_rule(const std::string& name, const Node& body, bool in_terminal) {
    out_ += name_of(name, in_terminal) + ": ";
    write_node(body, in_terminal);
    out_ += '\n';
  }

  void write_list(const Node& node, bool in_terminal, const char* separator) {
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      if (i > 0) out_ += separator;
      write_node(node.children[i], in_terminal);
    }
  }

  void write_node(const Node& node, bool in_terminal) {
    switch (node.kind) {
      case Node::Kind::kTerminal:
      case Node::Kind::kToken:
        out_ += node.text;
        return;
      case Node::Kind::kRule:
        out_ += name_of(node.text, in_terminal || is_terminal(node.text));
        return;
      case Node::Kind::kSequence:
        if (node.children.empty()) out_ += "\"\"";
        write_list(node, in_terminal, " ");
        return;
      case Node::Kind::kChoice:
        out_ += '(';
        write_list(node, in_terminal, " | ");
        out_ += ')';
        return;
      case Node::Kind::kRepeat:
        out_ += '(';
        write_list(node, in_terminal, "");
        out_ += "){" + std::to_string(node.least) + "," +
                (node.most == kNoBound ? "" : std::to_string(node.most)) + "}";
        return;
    }
  }

  const Rules& rules_;
  const Shapes& shapes_;
  const Follows follows_;
  std::string out_;
};

}  // namespace

Result<std::string> gbnf_to_lark(std::string_view text) {
  const Result<Rules> rules = gbnf::read(text);
  if (!rules) return rules.error();
  const Shapes shapes = find_shapes(*rules);
  return Writer(*rules, shapes).write();
}

}  // namespace lmtp::constraint
