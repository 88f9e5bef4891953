"""The functions that SQL from outside may call, those that it may not, and why.

A function of Spark's that stands in neither list is refused too; a test holds both lists against the Spark in use.
"""

from __future__ import annotations

from types import MappingProxyType

_PREDICATES = """
    ! < <= <=> = == > >= and equal_null ilike in isnan isnotnull isnull like not or regexp regexp_like rlike
"""
_NUMBERS = """
    % * + - / abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div
    e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power
    radians rand randn random rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply
    try_subtract unhex uniform width_bucket
    & << >> >>> ^ bit_count bit_get getbit shiftleft shiftright shiftrightunsigned | ~
"""
_TIMES = """
    add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date make_dt_interval
    make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval minute month monthname
    months_between next_day now quarter second session_window time_bucket time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp_micros timestamp_millis
    timestamp_seconds to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp
    trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_to_date try_to_time
    try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear window window_time
    year
"""
_STRINGS = """
    ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws contains decode elt
    encode endswith find_in_set format_number format_string initcap instr is_valid_utf8 lcase left len length
    levenshtein locate lower lpad ltrim luhn_check make_valid_utf8 mask octet_length overlay position printf quote
    randstr regexp_count regexp_extract regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace
    right rpad rtrim sentences soundex space split split_part startswith substr substring substring_index to_binary
    to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper
    validate_utf8
    crc32 hash md5 sha sha1 sha2 xxhash64
    aes_decrypt aes_encrypt try_aes_decrypt uuid
    parse_url try_parse_url try_url_decode url_decode url_encode
"""
_CONDITIONS = """
    between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull assert_true raise_error
"""
_TYPES = """
    bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint typeof
"""
_COLLECTIONS = """
    aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys transform_values
    zip_with
    array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_union arrays_overlap
    arrays_zip flatten get sequence shuffle slice sort_array
    cardinality concat element_at reverse size try_element_at
    map map_concat map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values str_to_map
    named_struct struct
    explode explode_outer inline inline_outer posexplode posexplode_outer stack
    vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum
"""
_FORMATS = """
    from_csv schema_of_csv to_csv
    from_json get_json_object json_array_length json_object_keys json_tuple schema_of_json to_json
    from_xml schema_of_xml to_xml
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    is_valid_variant is_variant_null parse_json schema_of_variant schema_of_variant_agg to_variant_object try_parse_json
    try_variant_get variant_get
    st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
"""
_AGGREGATES = """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
    array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
    collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
    kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean
    median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count
    regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp
    string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
"""
_SKETCHES = """
    approx_top_k_estimate bitmap_bit_position bitmap_bucket_number bitmap_count hll_sketch_estimate hll_union
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
    kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float theta_difference
    theta_intersection theta_sketch_estimate theta_union tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_estimate_double
    tuple_sketch_estimate_integer tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
    tuple_sketch_theta_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer
"""

FUNCTIONS = frozenset(
    name
    for listed in (
        *(_PREDICATES, _NUMBERS, _TIMES, _STRINGS, _CONDITIONS),
        *(_TYPES, _COLLECTIONS, _FORMATS, _AGGREGATES, _SKETCHES),
    )
    for name in listed.split()
)

_OF_ROWS = """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack variant_explode
    variant_explode_outer
"""
TABLE_FUNCTIONS = frozenset(_OF_ROWS.split())

# Functions that take a map of options, and which of their arguments it is, from 0.
OPTIONED = (
    "from_csv:2 from_json:2 from_xml:2 schema_of_csv:1 schema_of_json:1 schema_of_xml:1 to_csv:1 to_json:1 to_xml:1"
)

# How text is read and written. Left out are those that name a file (rowValidationXSDPath) or a class (compression), and
# those that set how much memory a reader takes (maxColumns, maxCharsPerColumn, maxNestingDepth, maxStringLen).
_OF_TEXT = """
    columnnameofcorruptrecord dateformat enabledatetimeparsingfallback encoding charset locale mode multiline nullvalue
    preferdate samplingratio timeformat timestampformat timestampntzformat timezone
    chartoescapequoteescaping comment delimiter emptyvalue enforceschema escape escapequotes header
    ignoreleadingwhitespace ignoretrailingwhitespace inferschema linesep nanvalue negativeinf positiveinf quote quoteall
    sep unescapedquotehandling
    allowbackslashescapinganycharacter allowcomments allownonnumericnumbers allownumericleadingzeros allowsinglequotes
    allowunquotedcontrolchars allowunquotedfieldnames dropfieldifallnull ignorenullfields infertimestamp prefersdecimal
    pretty primitivesasstring singlevariantcolumn sortkeys writenonasciicharacterascodepoint
    arrayelementname attributeprefix declaration excludeattribute ignorenamespace ignoresurroundingspaces indent roottag
    rowtag treatemptyvaluesasnulls validatename valuetag wildcardcolname
"""
OPTIONS = frozenset(_OF_TEXT.split())

_PROGRAMS = "it would call any method of Java by its name"
_SCHEMA_FILES = "it reads schemas from files and addresses"
_HOME_FILES = "it tells the files that the server keeps"
_PROCESS = "it tells about the server, not about the data"
_LAYOUT = "its answer depends on how Spark lays out rows"
_DELTA = "a query reads the tables and views of this home alone"

REFUSED = MappingProxyType(
    {
        **dict.fromkeys(("java_method", "reflect", "try_reflect"), _PROGRAMS),
        **dict.fromkeys(("from_avro", "from_protobuf", "schema_of_avro", "to_avro", "to_protobuf"), _SCHEMA_FILES),
        **dict.fromkeys(("input_file_block_length", "input_file_block_start", "input_file_name"), _HOME_FILES),
        **dict.fromkeys(("current_catalog", "current_database", "current_path", "current_schema"), _PROCESS),
        **dict.fromkeys(("current_user", "session_user", "user", "version"), _PROCESS),
        **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id"), _LAYOUT),
        "measure": "metric views are not offered",
    }
)

REFUSED_TABLE_FUNCTIONS = MappingProxyType(
    {
        **dict.fromkeys(("table_changes", "table_changes_by_path"), _DELTA),
        **dict.fromkeys(("collations", "python_worker_logs", "sql_keywords"), _PROCESS),
    }
)
