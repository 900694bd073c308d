//! LiteLLM's books.
