static UMADB_V1_EVENT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<Vec<u8>>(), message: None },
Field { number: 3, element: 0, message: None },
Field { number: 4, element: 0, message: None },
Field { number: 5, element: size_of::<crate::proto::umadb::v1::MetadataEntry>(), message: Some(&UMADB_V1_METADATAENTRY) },
] };
static UMADB_V1_METADATAENTRY: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static UMADB_V1_SEQUENCEDEVENT: Shape = Shape { fields: &[
Field { number: 2, element: 0, message: Some(&UMADB_V1_EVENT) },
Field { number: 3, element: 0, message: Some(&UMADB_V1_TRACKINGINFO) },
] };
static UMADB_V1_TRACKINGINFO: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static UMADB_V1_QUERYITEM: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<Vec<u8>>(), message: None },
Field { number: 2, element: size_of::<Vec<u8>>(), message: None },
] };
static UMADB_V1_QUERY: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::umadb::v1::QueryItem>(), message: Some(&UMADB_V1_QUERYITEM) },
] };
static UMADB_V1_READREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&UMADB_V1_QUERY) },
] };
static UMADB_V1_READRESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::umadb::v1::SequencedEvent>(), message: Some(&UMADB_V1_SEQUENCEDEVENT) },
] };
static UMADB_V1_SUBSCRIBEREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&UMADB_V1_QUERY) },
] };
static UMADB_V1_SUBSCRIBERESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::umadb::v1::SequencedEvent>(), message: Some(&UMADB_V1_SEQUENCEDEVENT) },
] };
static UMADB_V1_APPENDCONDITION: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&UMADB_V1_QUERY) },
] };
static UMADB_V1_APPENDREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::umadb::v1::Event>(), message: Some(&UMADB_V1_EVENT) },
Field { number: 2, element: 0, message: Some(&UMADB_V1_APPENDCONDITION) },
Field { number: 3, element: 0, message: Some(&UMADB_V1_TRACKINGINFO) },
] };
static UMADB_V1_APPENDRESPONSE: Shape = Shape { fields: &[
] };
static UMADB_V1_HEADREQUEST: Shape = Shape { fields: &[
] };
static UMADB_V1_HEADRESPONSE: Shape = Shape { fields: &[
] };
static UMADB_V1_TRACKINGREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static UMADB_V1_TRACKINGRESPONSE: Shape = Shape { fields: &[
] };
static UMADB_V1_ERRORRESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_EVENT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<Vec<u8>>(), message: None },
Field { number: 3, element: 0, message: None },
Field { number: 4, element: 0, message: None },
Field { number: 5, element: size_of::<crate::proto::ropewalk::events::v1::MetadataEntry>(), message: Some(&ROPEWALK_EVENTS_V1_METADATAENTRY) },
] };
static ROPEWALK_EVENTS_V1_METADATAENTRY: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_SEQUENCEDEVENT: Shape = Shape { fields: &[
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_EVENT) },
Field { number: 3, element: 0, message: Some(&ROPEWALK_EVENTS_V1_UPSTREAMPOSITION) },
] };
static ROPEWALK_EVENTS_V1_UPSTREAMPOSITION: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_QUERYITEM: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<Vec<u8>>(), message: None },
Field { number: 2, element: size_of::<Vec<u8>>(), message: None },
] };
static ROPEWALK_EVENTS_V1_QUERY: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::events::v1::QueryItem>(), message: Some(&ROPEWALK_EVENTS_V1_QUERYITEM) },
] };
static ROPEWALK_EVENTS_V1_APPENDCONDITION: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_EVENTS_V1_APPENDREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<crate::proto::ropewalk::events::v1::Event>(), message: Some(&ROPEWALK_EVENTS_V1_EVENT) },
Field { number: 3, element: size_of::<crate::proto::ropewalk::events::v1::AppendCondition>(), message: Some(&ROPEWALK_EVENTS_V1_APPENDCONDITION) },
Field { number: 4, element: 0, message: Some(&ROPEWALK_EVENTS_V1_UPSTREAMPOSITION) },
Field { number: 5, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_APPENDRESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_READREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_EVENTS_V1_READRESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::events::v1::SequencedEvent>(), message: Some(&ROPEWALK_EVENTS_V1_SEQUENCEDEVENT) },
] };
static ROPEWALK_EVENTS_V1_LASTREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_EVENTS_V1_LASTRESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_EVENTS_V1_SEQUENCEDEVENT) },
] };
static ROPEWALK_EVENTS_V1_COUNTREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_EVENTS_V1_COUNTRESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_EXISTSREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_EVENTS_V1_EXISTSRESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_HEADREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_HEADRESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_TRACKINGREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_TRACKINGRESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_SUBSCRIBEREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_EVENTS_V1_SUBSCRIBERESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::events::v1::SequencedEvent>(), message: Some(&ROPEWALK_EVENTS_V1_SEQUENCEDEVENT) },
] };
static ROPEWALK_EVENTS_V1_LISTSTORESREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_LISTSTORESRESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::events::v1::StoreInfo>(), message: Some(&ROPEWALK_EVENTS_V1_STOREINFO) },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_STOREINFO: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_CREATESTOREREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_CREATESTORERESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_DELETESTOREREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_EVENTS_V1_DELETESTORERESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_EVENTS_V1_ERROR: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
Field { number: 3, element: 0, message: Some(&ROPEWALK_EVENTS_V1_CONFLICT) },
] };
static ROPEWALK_EVENTS_V1_CONFLICT: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_COMMITREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::v1::Operation>(), message: Some(&ROPEWALK_V1_OPERATION) },
Field { number: 2, element: size_of::<crate::proto::ropewalk::v1::Precondition>(), message: Some(&ROPEWALK_V1_PRECONDITION) },
Field { number: 7, element: 0, message: None },
] };
static ROPEWALK_V1_COMMITRESPONSE: Shape = Shape { fields: &[
Field { number: 3, element: size_of::<crate::proto::ropewalk::v1::OperationResult>(), message: Some(&ROPEWALK_V1_OPERATIONRESULT) },
] };
static ROPEWALK_V1_BEGINREQUEST: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_BEGINRESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_V1_EXECUTEREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<crate::proto::ropewalk::v1::Operation>(), message: Some(&ROPEWALK_V1_OPERATION) },
] };
static ROPEWALK_V1_EXECUTERESPONSE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::v1::OperationResult>(), message: Some(&ROPEWALK_V1_OPERATIONRESULT) },
] };
static ROPEWALK_V1_COMMITOPENREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_V1_COMMITOPENRESPONSE: Shape = Shape { fields: &[
Field { number: 2, element: size_of::<crate::proto::ropewalk::v1::AppendedEvents>(), message: Some(&ROPEWALK_V1_APPENDEDEVENTS) },
] };
static ROPEWALK_V1_ROLLBACKREQUEST: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_V1_ROLLBACKRESPONSE: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_OPERATION: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_APPENDEVENTS) },
Field { number: 2, element: 0, message: Some(&ROPEWALK_V1_READEVENTS) },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_DOCUMENTSOPERATION) },
Field { number: 4, element: 0, message: Some(&ROPEWALK_V1_STATEMENT) },
Field { number: 5, element: 0, message: Some(&ROPEWALK_V1_APPENDSAMPLES) },
Field { number: 6, element: 0, message: Some(&ROPEWALK_V1_SETCHECKPOINT) },
] };
static ROPEWALK_V1_PRECONDITION: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_EVENTSUNCHANGED) },
Field { number: 2, element: 0, message: Some(&ROPEWALK_V1_DOCUMENTSMATCH) },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_STATEMENT) },
] };
static ROPEWALK_V1_EVENTSUNCHANGED: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_V1_DOCUMENTSMATCH: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_APPENDEVENTS: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<crate::proto::ropewalk::events::v1::Event>(), message: Some(&ROPEWALK_EVENTS_V1_EVENT) },
Field { number: 3, element: size_of::<crate::proto::ropewalk::events::v1::AppendCondition>(), message: Some(&ROPEWALK_EVENTS_V1_APPENDCONDITION) },
Field { number: 4, element: 0, message: Some(&ROPEWALK_EVENTS_V1_UPSTREAMPOSITION) },
] };
static ROPEWALK_V1_READEVENTS: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_EVENTS_V1_QUERY) },
] };
static ROPEWALK_V1_DOCUMENT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_V1_DOCUMENTSOPERATION: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 4, element: 0, message: Some(&ROPEWALK_V1_UPDATEDOCUMENTS) },
Field { number: 5, element: 0, message: Some(&ROPEWALK_V1_DELETEDOCUMENTS) },
Field { number: 6, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 7, element: 0, message: Some(&ROPEWALK_V1_FINDDOCUMENTS) },
] };
static ROPEWALK_V1_UPDATEDOCUMENTS: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 2, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_PIPELINE) },
Field { number: 4, element: size_of::<crate::proto::ropewalk::v1::Document>(), message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 7, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 8, element: 0, message: Some(&ROPEWALK_V1_INDEXHINT) },
] };
static ROPEWALK_V1_PIPELINE: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::v1::Document>(), message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_DELETEDOCUMENTS: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_FINDDOCUMENTS: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 2, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
Field { number: 6, element: 0, message: Some(&ROPEWALK_V1_INDEXHINT) },
] };
static ROPEWALK_V1_INDEXHINT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_STATEMENT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<crate::proto::ropewalk::v1::SqlValue>(), message: Some(&ROPEWALK_V1_SQLVALUE) },
] };
static ROPEWALK_V1_SQLVALUE: Shape = Shape { fields: &[
Field { number: 4, element: 0, message: None },
Field { number: 5, element: 0, message: None },
] };
static ROPEWALK_V1_APPENDSAMPLES: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: size_of::<crate::proto::ropewalk::v1::SeriesSamples>(), message: Some(&ROPEWALK_V1_SERIESSAMPLES) },
] };
static ROPEWALK_V1_SERIESSAMPLES: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::v1::Label>(), message: Some(&ROPEWALK_V1_LABEL) },
Field { number: 2, element: size_of::<crate::proto::ropewalk::v1::Sample>(), message: Some(&ROPEWALK_V1_SAMPLE) },
] };
static ROPEWALK_V1_LABEL: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_V1_SAMPLE: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_SETCHECKPOINT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_V1_OPERATIONRESULT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_APPENDEDEVENTS) },
Field { number: 2, element: 0, message: Some(&ROPEWALK_V1_EVENTS) },
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_INSERTEDDOCUMENT) },
Field { number: 4, element: 0, message: Some(&ROPEWALK_V1_UPDATEDDOCUMENTS) },
Field { number: 5, element: 0, message: Some(&ROPEWALK_V1_DELETEDDOCUMENTS) },
Field { number: 6, element: 0, message: Some(&ROPEWALK_V1_FOUNDDOCUMENT) },
Field { number: 7, element: 0, message: Some(&ROPEWALK_V1_DOCUMENTS) },
Field { number: 8, element: 0, message: Some(&ROPEWALK_V1_SQLRESULT) },
Field { number: 9, element: 0, message: Some(&ROPEWALK_V1_APPENDEDSAMPLES) },
Field { number: 10, element: 0, message: Some(&ROPEWALK_V1_CHECKPOINTSET) },
] };
static ROPEWALK_V1_APPENDEDEVENTS: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
] };
static ROPEWALK_V1_EVENTS: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::events::v1::SequencedEvent>(), message: Some(&ROPEWALK_EVENTS_V1_SEQUENCEDEVENT) },
] };
static ROPEWALK_V1_INSERTEDDOCUMENT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_UPDATEDDOCUMENTS: Shape = Shape { fields: &[
Field { number: 3, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_DELETEDDOCUMENTS: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_FOUNDDOCUMENT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_DOCUMENTS: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::v1::Document>(), message: Some(&ROPEWALK_V1_DOCUMENT) },
] };
static ROPEWALK_V1_SQLRESULT: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 3, element: size_of::<crate::proto::ropewalk::v1::Column>(), message: Some(&ROPEWALK_V1_COLUMN) },
Field { number: 4, element: size_of::<crate::proto::ropewalk::v1::Row>(), message: Some(&ROPEWALK_V1_ROW) },
] };
static ROPEWALK_V1_COLUMN: Shape = Shape { fields: &[
Field { number: 1, element: 0, message: None },
Field { number: 2, element: 0, message: None },
] };
static ROPEWALK_V1_ROW: Shape = Shape { fields: &[
Field { number: 1, element: size_of::<crate::proto::ropewalk::v1::SqlValue>(), message: Some(&ROPEWALK_V1_SQLVALUE) },
] };
static ROPEWALK_V1_APPENDEDSAMPLES: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_CHECKPOINTSET: Shape = Shape { fields: &[
] };
static ROPEWALK_V1_TRANSACTIONERROR: Shape = Shape { fields: &[
Field { number: 3, element: 0, message: None },
Field { number: 4, element: 0, message: None },
Field { number: 5, element: 0, message: None },
] };
pub(super) fn of_call(path: &str) -> Option<&'static Shape> {
match path {
"/umadb.v1.DCB/Read" => Some(&UMADB_V1_READREQUEST),
"/umadb.v1.DCB/Subscribe" => Some(&UMADB_V1_SUBSCRIBEREQUEST),
"/umadb.v1.DCB/Append" => Some(&UMADB_V1_APPENDREQUEST),
"/umadb.v1.DCB/Head" => Some(&UMADB_V1_HEADREQUEST),
"/umadb.v1.DCB/GetTrackingInfo" => Some(&UMADB_V1_TRACKINGREQUEST),
"/ropewalk.events.v1.Events/Append" => Some(&ROPEWALK_EVENTS_V1_APPENDREQUEST),
"/ropewalk.events.v1.Events/Read" => Some(&ROPEWALK_EVENTS_V1_READREQUEST),
"/ropewalk.events.v1.Events/Last" => Some(&ROPEWALK_EVENTS_V1_LASTREQUEST),
"/ropewalk.events.v1.Events/Count" => Some(&ROPEWALK_EVENTS_V1_COUNTREQUEST),
"/ropewalk.events.v1.Events/Exists" => Some(&ROPEWALK_EVENTS_V1_EXISTSREQUEST),
"/ropewalk.events.v1.Events/Head" => Some(&ROPEWALK_EVENTS_V1_HEADREQUEST),
"/ropewalk.events.v1.Events/Tracking" => Some(&ROPEWALK_EVENTS_V1_TRACKINGREQUEST),
"/ropewalk.events.v1.Events/Subscribe" => Some(&ROPEWALK_EVENTS_V1_SUBSCRIBEREQUEST),
"/ropewalk.events.v1.Events/ListStores" => Some(&ROPEWALK_EVENTS_V1_LISTSTORESREQUEST),
"/ropewalk.events.v1.Events/CreateStore" => Some(&ROPEWALK_EVENTS_V1_CREATESTOREREQUEST),
"/ropewalk.events.v1.Events/DeleteStore" => Some(&ROPEWALK_EVENTS_V1_DELETESTOREREQUEST),
"/ropewalk.v1.Transactions/Commit" => Some(&ROPEWALK_V1_COMMITREQUEST),
"/ropewalk.v1.Transactions/Begin" => Some(&ROPEWALK_V1_BEGINREQUEST),
"/ropewalk.v1.Transactions/Execute" => Some(&ROPEWALK_V1_EXECUTEREQUEST),
"/ropewalk.v1.Transactions/CommitOpen" => Some(&ROPEWALK_V1_COMMITOPENREQUEST),
"/ropewalk.v1.Transactions/Rollback" => Some(&ROPEWALK_V1_ROLLBACKREQUEST),
_ => None,
}
}
