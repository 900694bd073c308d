//! The smallest value that fits a JSON schema, and which schema a request wants its answer in.

use super::Api;
use super::conversation::list;
use serde_json::{Map, Value, json};

/// A value that fits. The name of what it is for decides between numbers: a timeout of 1 would end the command.
pub(super) fn example(schema: &Value, name: &str) -> Value {
    if let Some(only) = schema.get("const").or(list(&schema["enum"]).first()) {
        return only.clone();
    }
    if let Some(first) = ["anyOf", "oneOf"].iter().find_map(|key| list(&schema[*key]).first()) {
        return example(first, name);
    }
    let kind = match &schema["type"] {
        Value::String(kind) => kind.to_lowercase(),
        Value::Array(kinds) => kinds.first().and_then(Value::as_str).unwrap_or_default().to_lowercase(),
        _ if schema.get("properties").is_some() => "object".into(),
        _ => "string".into(),
    };
    let name = name.to_lowercase();
    match kind.as_str() {
        "integer" | "number" if name.contains("timeout") && name.ends_with("ms") => 60_000.into(),
        "integer" | "number" if name.contains("timeout") => 60.into(),
        "integer" => schema.get("minimum").cloned().unwrap_or(1.into()),
        "number" => 1.into(),
        "object" => object(schema),
        "array" => json!([]),
        "boolean" => false.into(),
        "null" => Value::Null,
        _ => format!("mock {name}").into(),
    }
}

/// With what is required; where nothing is said of that, with everything.
fn object(schema: &Value) -> Value {
    let required = list(&schema["required"]);
    let nothing = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&nothing);
    let required = properties
        .iter()
        .filter(|(name, _)| required.is_empty() || required.iter().any(|required| required == name.as_str()));
    required.map(|(name, schema)| (name.clone(), example(schema, name))).collect::<Map<_, _>>().into()
}

/// The schema that the answer is to have.
pub(super) fn required(api: Api, body: &Value) -> Option<Value> {
    let anything = || json!({"type": "object"});
    if api == Api::Gemini {
        let config = &body["generationConfig"];
        let schema = config.get("responseJsonSchema").or(config.get("responseSchema"));
        let is_json = config["responseMimeType"] == "application/json";
        return is_json.then(|| schema.cloned().unwrap_or_else(anything));
    }
    let places = [
        &body["output_config"]["format"],
        &body["output_format"],
        &body["text"]["format"],
        &body["response_format"],
    ];
    places.into_iter().find_map(|place| match place["type"].as_str() {
        Some("json_schema") => {
            place.get("schema").or(place["json_schema"].get("schema")).cloned().or_else(|| Some(anything()))
        }
        Some("json_object") => Some(anything()),
        _ => None,
    })
}
