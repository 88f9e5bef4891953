// The body of a class that Spark's own compiler makes: answers in one go what Python would have to ask about a plan
// part by part. An object is named by the number under which the gateway keeps it, as in the gateway's own answers.
private py4j.Gateway gateway;

public Object generate(Object[] given) {
  gateway = ((py4j.GatewayServer) given[0]).getGateway();
  return this;
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

// The relation and the place that mark a column as one of ours; nothing for any other.
public String mark(Object one, String relation, String place) {
  org.apache.spark.sql.types.Metadata metadata =
      ((org.apache.spark.sql.catalyst.expressions.NamedExpression) one).metadata();
  return metadata.contains(relation) ? metadata.getLong(place) + "\n" + metadata.getString(relation) : null;
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
