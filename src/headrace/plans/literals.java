// The body of a class that Spark's own compiler makes: the rows of VALUES, cast to the types of columns, as one Arrow
// stream. Spark evaluates constants while it reads them, so that no job is needed; nothing is the answer where a value
// is more than a constant, or where the columns do not fit.
private static final java.util.List MADE_OF_PARTS =
    java.util.Arrays.asList(new Object[] {"array", "map", "named_struct", "struct"});

public byte[] literalRows(Object session, Object parsed, String schema) throws java.io.IOException {
  org.apache.spark.sql.catalyst.plans.logical.LogicalPlan plan =
      (org.apache.spark.sql.catalyst.plans.logical.LogicalPlan) parsed;
  if (isPlain(plan)) {
    plan = org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(
        (org.apache.spark.sql.classic.SparkSession) session, plan).queryExecution().analyzed();
  }
  if (!(plan instanceof org.apache.spark.sql.catalyst.plans.logical.LocalRelation)) {
    return null;
  }
  return cast(
      (org.apache.spark.sql.catalyst.plans.logical.LocalRelation) plan,
      (org.apache.spark.sql.types.StructType) org.apache.spark.sql.types.DataType$.MODULE$.fromJson(schema));
}

private boolean isPlain(org.apache.spark.sql.catalyst.plans.logical.LogicalPlan plan) {
  if (!(plan instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable)) {
    return false;
  }
  scala.collection.Iterator rows =
      ((org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable) plan).rows().iterator();
  while (rows.hasNext()) {
    if (!arePlain((scala.collection.Seq) rows.next())) {
      return false;
    }
  }
  return true;
}

private boolean arePlain(scala.collection.Seq values) {
  scala.collection.Iterator each = values.iterator();
  while (each.hasNext()) {
    org.apache.spark.sql.catalyst.expressions.Expression one =
        (org.apache.spark.sql.catalyst.expressions.Expression) each.next();
    if (!isPlain(one) || !arePlain(one.children())) {
      return false;
    }
  }
  return true;
}

private boolean isPlain(org.apache.spark.sql.catalyst.expressions.Expression value) {
  if (value instanceof org.apache.spark.sql.catalyst.analysis.UnresolvedFunction) {
    scala.collection.Seq name = ((org.apache.spark.sql.catalyst.analysis.UnresolvedFunction) value).nameParts();
    return name.size() == 1 && MADE_OF_PARTS.contains(((String) name.head()).toLowerCase(java.util.Locale.ROOT));
  }
  return value instanceof org.apache.spark.sql.catalyst.expressions.Literal
      || value instanceof org.apache.spark.sql.catalyst.expressions.Cast
      || value instanceof org.apache.spark.sql.catalyst.expressions.UnaryMinus
      || value instanceof org.apache.spark.sql.catalyst.expressions.UnaryPositive
      || value instanceof org.apache.spark.sql.catalyst.expressions.CreateNamedStruct
      || value instanceof org.apache.spark.sql.catalyst.expressions.Alias;
}

private byte[] cast(
    org.apache.spark.sql.catalyst.plans.logical.LocalRelation read, org.apache.spark.sql.types.StructType schema)
    throws java.io.IOException {
  int width = schema.length();
  if (read.output().size() != width) {
    return null;
  }
  org.apache.spark.sql.catalyst.expressions.Expression[] columns =
      new org.apache.spark.sql.catalyst.expressions.Expression[width];
  for (int i = 0; i < width; i++) {
    org.apache.spark.sql.catalyst.expressions.Expression given =
        (org.apache.spark.sql.catalyst.expressions.Expression) read.output().apply(i);
    columns[i] = (org.apache.spark.sql.catalyst.expressions.Expression)
        org.apache.spark.sql.catalyst.expressions.Cast$.MODULE$.apply(
            new org.apache.spark.sql.catalyst.expressions.BoundReference(i, given.dataType(), given.nullable()),
            schema.apply(i).dataType(), true).withTimeZone("UTC");
    if (!columns[i].resolved()) {
      return null;
    }
  }
  java.util.ArrayList rows = new java.util.ArrayList();
  scala.collection.Iterator each = read.data().iterator();
  while (each.hasNext()) {
    org.apache.spark.sql.catalyst.InternalRow row = (org.apache.spark.sql.catalyst.InternalRow) each.next();
    Object[] values = new Object[width];
    for (int i = 0; i < width; i++) {
      values[i] = columns[i].eval(row);
    }
    rows.add(new org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values));
  }
  scala.collection.Iterator batches =
      org.apache.spark.sql.execution.arrow.ArrowConverters$.MODULE$.toBatchWithSchemaIterator(
          org.apache.spark.api.python.PythonUtils.toSeq(rows).iterator(), schema.asNullable(), -1L, Long.MAX_VALUE, "UTC", true,
          false);
  java.io.ByteArrayOutputStream stream = new java.io.ByteArrayOutputStream();
  while (batches.hasNext()) {
    stream.write((byte[]) batches.next());
  }
  return stream.toByteArray();
}
