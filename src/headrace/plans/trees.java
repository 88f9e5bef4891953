// The body of a class that Spark's own compiler makes: answers in one go what Python would have to ask about a plan
// part by part. An object is named by the number under which the gateway keeps it, as in the gateway's own answers.
private py4j.Gateway gateway;
private com.fasterxml.jackson.databind.ObjectMapper json = new com.fasterxml.jackson.databind.ObjectMapper();

public void begin(Object server) {
  gateway = ((py4j.GatewayServer) server).getGateway();
}

public String kind(Object one) {
  String name = one.getClass().getSimpleName();
  if (name.isEmpty()) {
    // A class without a name of its own, which an answer in words must not leave out.
    name = one.getClass().getName();
  }
  return name.endsWith("$") ? name.substring(0, name.length() - 1) : name;
}

// Each object's number and kind; nothing if the gateway would hand out one of them as a value of Python's.
public String items(Object sequence) {
  StringBuilder found = new StringBuilder();
  scala.collection.Iterator each = ((scala.collection.Iterable) sequence).iterator();
  while (each.hasNext()) {
    Object one = each.next();
    if (one == null || !(one.getClass().getName().startsWith("org.apache.spark.sql.")
        || one instanceof scala.collection.Seq || one instanceof scala.Option)) {
      return null;
    }
    found.append(gateway.putNewObject(one)).append(' ').append(kind(one)).append(' ');
  }
  return found.toString();
}

public String children(Object node) {
  return items(((org.apache.spark.sql.catalyst.trees.TreeNode) node).children());
}

public String expressions(Object plan) {
  return items(((org.apache.spark.sql.catalyst.plans.QueryPlan) plan).expressions());
}

public String output(Object plan) {
  return items(((org.apache.spark.sql.catalyst.plans.QueryPlan) plan).output());
}

public Object sequence(String numbers) {
  java.util.ArrayList listed = new java.util.ArrayList();
  java.util.StringTokenizer each = new java.util.StringTokenizer(numbers);
  while (each.hasMoreTokens()) {
    listed.add(gateway.getObject(each.nextToken()));
  }
  return org.apache.spark.api.python.PythonUtils.toSeq(listed);
}

public String attribute(Object one) {
  org.apache.spark.sql.catalyst.expressions.NamedExpression column =
      (org.apache.spark.sql.catalyst.expressions.NamedExpression) one;
  org.apache.spark.sql.catalyst.expressions.Expression valued =
      (org.apache.spark.sql.catalyst.expressions.Expression) one;
  return column.exprId().id() + "\n" + valued.nullable() + "\n" + valued.dataType().json() + "\n" + column.name();
}

// The relation and the index that mark a column as one of ours; nothing for any other.
public String mark(Object one, String relation, String index) {
  org.apache.spark.sql.types.Metadata metadata =
      ((org.apache.spark.sql.catalyst.expressions.NamedExpression) one).metadata();
  return metadata.contains(relation) ? metadata.getLong(index) + "\n" + metadata.getString(relation) : null;
}

public String references(Object expression) {
  StringBuilder found = new StringBuilder();
  collectReferences((org.apache.spark.sql.catalyst.trees.TreeNode) expression, found);
  return found.toString();
}

private void collectReferences(org.apache.spark.sql.catalyst.trees.TreeNode node, StringBuilder found) {
  if (node instanceof org.apache.spark.sql.catalyst.expressions.AttributeReference) {
    found.append(((org.apache.spark.sql.catalyst.expressions.AttributeReference) node).exprId().id()).append(' ');
  }
  scala.collection.Iterator each = node.children().iterator();
  while (each.hasNext()) {
    collectReferences((org.apache.spark.sql.catalyst.trees.TreeNode) each.next(), found);
  }
}

// The name of each function that Spark comes with, and the class of what it becomes.
public String functions() {
  org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase registry =
      org.apache.spark.sql.catalyst.analysis.FunctionRegistry$.MODULE$.builtin();
  StringBuilder found = new StringBuilder();
  scala.collection.Iterator each = registry.listFunction().iterator();
  while (each.hasNext()) {
    org.apache.spark.sql.catalyst.FunctionIdentifier name =
        (org.apache.spark.sql.catalyst.FunctionIdentifier) each.next();
    org.apache.spark.sql.catalyst.expressions.ExpressionInfo info =
        (org.apache.spark.sql.catalyst.expressions.ExpressionInfo) registry.lookupFunction(name).get();
    found.append(name.funcName()).append(' ').append(info.getClassName()).append('\n');
  }
  return found.toString();
}

// Everything that a plan is made of, down to its subqueries, in one answer, as JSON: each part is what it is, its name,
// and the line and the position in the text where it was first met. Plans and expressions are named by their class;
// relations, functions, table functions and options by what the query itself calls them, which may be any characters.
public String survey(Object plan, String optioned) throws java.io.IOException {
  java.util.Map found = new java.util.LinkedHashMap();
  surveyPart(plan, found, new java.util.IdentityHashMap(), " " + optioned + " ");
  return json.writeValueAsString(found.values());
}

private void surveyPart(Object one, java.util.Map found, java.util.Map seen, String optioned) {
  if (one instanceof org.apache.spark.sql.catalyst.trees.TreeNode) {
    if (seen.put(one, one) == null) {
      surveyNode((org.apache.spark.sql.catalyst.trees.TreeNode) one, found, seen, optioned);
    }
  } else if (one instanceof scala.collection.Iterable) {
    scala.collection.Iterator each = ((scala.collection.Iterable) one).iterator();
    while (each.hasNext()) {
      surveyPart(each.next(), found, seen, optioned);
    }
  } else if (one instanceof scala.Product && !(one instanceof org.apache.spark.sql.types.DataType)) {
    String name = one.getClass().getName();
    if (name.startsWith("scala.") || (name.startsWith("org.apache.spark.sql.catalyst.")
        && !name.startsWith("org.apache.spark.sql.catalyst.catalog."))) {
      surveyEach(((scala.Product) one).productIterator(), found, seen, optioned);
    }
  }
}

private void surveyEach(scala.collection.Iterator each, java.util.Map found, java.util.Map seen, String optioned) {
  while (each.hasNext()) {
    surveyPart(each.next(), found, seen, optioned);
  }
}

private void surveyNode(org.apache.spark.sql.catalyst.trees.TreeNode node, java.util.Map found, java.util.Map seen,
    String optioned) {
  if (node instanceof org.apache.spark.sql.catalyst.plans.logical.View
      && ((org.apache.spark.sql.catalyst.plans.logical.View) node).isTempView()) {
    // One of our own relations: the query has made nothing of it, nor of what lies below.
    return;
  }
  boolean isPlan = node instanceof org.apache.spark.sql.catalyst.plans.QueryPlan;
  tell(found, isPlan ? "plan" : "expression", node.getClass().getName(), node);
  if (node instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedFunction) {
    surveyFunction((org.apache.spark.sql.catalyst.analysis.UnresolvedFunction) node, found, optioned);
  } else if (node instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator) {
    tell(found, "function", ((org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator) node).name().unquotedString(),
        node);
  } else if (node instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction) {
    org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction function =
        (org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction) node;
    tell(found, "table function", function.name().mkString("."), node);
  } else if (node instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedRelation) {
    org.apache.spark.sql.catalyst.analysis.UnresolvedRelation relation =
        (org.apache.spark.sql.catalyst.analysis.UnresolvedRelation) node;
    String name = relation.multipartIdentifier().mkString(".");
    tell(found, relation.multipartIdentifier().size() == 1 ? "relation" : "far relation", name, node);
    if (!relation.options().isEmpty()) {
      tell(found, "relation option", name, node);
    }
    if (relation.isStreaming()) {
      tell(found, "stream", name, node);
    }
  }
  if (node instanceof org.apache.spark.sql.catalyst.plans.logical.LocalRelation) {
    // Rows: the query has made nothing of what lies below.
    return;
  }
  if (!isPlan) {
    surveyOptions(node, found);
  }
  surveyEach(((scala.Product) node).productIterator(), found, seen, optioned);
  surveyEach(node.children().iterator(), found, seen, optioned);
  surveyEach(node.innerChildren().iterator(), found, seen, optioned);
}

// A resolved function keeps its options as a map; only literal ones may be given, so that they are known beforehand.
private void surveyOptions(org.apache.spark.sql.catalyst.trees.TreeNode node, java.util.Map found) {
  scala.collection.Iterator each = ((scala.Product) node).productIterator();
  while (each.hasNext()) {
    Object part = each.next();
    if (part instanceof scala.collection.Map) {
      scala.collection.Iterator keys = ((scala.collection.Map) part).keysIterator();
      while (keys.hasNext()) {
        tell(found, "option", String.valueOf(keys.next()), node);
      }
    }
  }
}

private void surveyFunction(org.apache.spark.sql.catalyst.analysis.UnresolvedFunction function, java.util.Map found,
    String optioned) {
  String name = function.nameParts().mkString(".");
  tell(found, "function", name, function);
  String bare = String.valueOf(function.nameParts().last()).toLowerCase(java.util.Locale.ROOT);
  int at = optioned.indexOf(" " + bare + ":");
  if (at < 0) {
    return;
  }
  int index = optioned.charAt(at + bare.length() + 2) - '0';
  if (function.arguments().size() <= index) {
    return;
  }
  Object options = function.arguments().apply(index);
  if (!(options instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedFunction)
      || !isMap((org.apache.spark.sql.catalyst.analysis.UnresolvedFunction) options)) {
    tell(found, "unknown options", bare, function);
    return;
  }
  scala.collection.Seq parts = ((org.apache.spark.sql.catalyst.analysis.UnresolvedFunction) options).arguments();
  for (int i = 0; i < parts.size(); i += 2) {
    if (parts.apply(i) instanceof org.apache.spark.sql.catalyst.expressions.Literal) {
      Object key = ((org.apache.spark.sql.catalyst.expressions.Literal) parts.apply(i)).value();
      tell(found, "option", String.valueOf(key), function);
    } else {
      tell(found, "unknown options", bare, function);
    }
  }
}

// Whatever stands before the name of a function is judged with that function.
private boolean isMap(org.apache.spark.sql.catalyst.analysis.UnresolvedFunction function) {
  return "map".equalsIgnoreCase(String.valueOf(function.nameParts().last()));
}

private void tell(java.util.Map found, String what, String name, org.apache.spark.sql.catalyst.trees.TreeNode node) {
  java.util.List key = java.util.Arrays.asList(new Object[] {what, name});
  if (!found.containsKey(key)) {
    scala.Option line = node.origin().line();
    scala.Option position = node.origin().startPosition();
    found.put(key, new Object[] {what, name, line.isDefined() ? line.get() : null,
        position.isDefined() ? position.get() : null});
  }
}
