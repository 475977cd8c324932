//! The functions of expressions, which `functions` resolves and evaluates.

macro_rules! functions {
    ($($name:ident),* $(,)?) => {
        /// A function, named after its effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Function { $($name),* }

        impl Function {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

functions! {
    ArrayAppend, ArrayCat, ArrayContained, ArrayContains, ArrayLower, ArrayNdims, ArrayOverlaps, ArrayPosition, ArrayPrepend,
    ArrayRemove, ArrayToString, ArrayUpper, Cbrt, ClockTimestamp, Decode, Div, Encode, Format, JsonBuildArray,
    JsonBuildObject, JsonPath, JsonPathText, NumNulls, QuoteIdent, QuoteLiteral, QuoteNullable, RegexpMatch, RegexpSplit,
    SizePretty, StringToArray, ToChar, ToHex, ToJson, Translate,
    Abs, ArrayLength, Ascii, Ceil, Chr, Concat, ConcatWs, DatePart, DateTrunc, Exp, Extract, Floor, Greatest, InZone,
    Initcap,
    JsonArrayLength, JsonTypeof, JsonbConcat, JsonbContained, JsonbContains, JsonbDelete, JsonbDeleteAll, JsonbDeleteAt,
    JsonbDeletePath, JsonbExists, JsonbExistsAll, JsonbExistsAny, JsonbInsert, JsonbPretty, JsonbSet, JsonbStripNulls, Least, Left, Length, Ln, Log, Lower, Lpad, Ltrim, MakeDate, Mod, NewUuid, Now, OctetLength, Pi,
    Power, Random, RegexpReplace, Repeat, Replace, Reverse, Right, Round, Rpad, Rtrim, Sign, Sleep, SplitPart, Sqrt, StartsWith,
    Strpos, Substr, ToTimestamp, Trim, Trunc, Upper,
    BitCount, BitLength, BytesConcat, BytesLtrim, BytesPosition, BytesRtrim, BytesSubstr, BytesTrim, ConvertFrom, ConvertTo, GetBit,
    GetByte, HashText, HashTextExtended, Md5, Overlay, SetBit, SetByte, Sha224, Sha256, Sha384, Sha512,
    RegexpCount, RegexpInstr, RegexpLike, RegexpReplaceFrom, RegexpSubstr, RegexpSubstring, SimilarPattern,
    Acos, Acosh, Asin, Asinh, Atan, Atan2, Atanh, Cos, Cosh, Cot, Degrees, Factorial, Gcd, Lcm, MinScale, Radians, Scale, Sin,
    Sinh, Tan, Tanh, TrimScale, WidthBucket,
    ArrayDims, ArrayFill, ArrayPositionFrom, ArrayPositions, ArrayReplace, ArraySlice, JsonObject, JsonStripNulls, JsonbSetLax,
    JsonRow, NumNonnulls, TrimArray,
    DateBin, IsFinite, ToDate, ToNumber, ToTimestampBy,
    Age, Between, IntervalAdd, IntervalDivided, IntervalTimes, JustifyDays, JustifyHours, JustifyInterval, Keep, MakeInterval, MakeTime,
    MakeTimestamp, MakeTimestamptz, Shifted,
    Abbrev, Broadcast, Family, Host, Hostmask, InetOverlaps, InetText, InetWithin, InetWithinOrEqual, Masklen, Netmask, Network,
    SameFamily, SetMasklen,
    Digest, Hmac, RandomBytes,
}
