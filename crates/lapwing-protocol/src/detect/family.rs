//! The protocols that are known.

macro_rules! families {
    ($($name:ident),* $(,)?) => {
        /// A known protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Family { $($name,)* }

        impl Family {
            /// Every protocol, in the order of their plans.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

families! {
    OipRest, OipGrpc, OipGrpcStream, TritonGenerate,
    OpenAiChat, OpenAiCompletions, OpenAiEmbeddings, OpenAiResponses, OpenAiTranscription, OpenAiSpeech, OpenAiImages,
    AnthropicMessages, CohereChat, CohereEmbed, Score, Classify, Pooling, CountTokens, Detokenize,
    TeiEmbed, TeiPredict, TeiRerank, TeiSimilarity, TeiGrpcEmbed, TeiGrpcPair, TeiGrpcRerank, TeiGrpcRerankStream,
    Generate, GenerateTokens, Encode, LlamaInfill, LlamaEmbedding,
    OllamaGenerate, OllamaChat, OllamaEmbed,
    Invocations, Vertex, Forecast,
    TorchServe, TfRest, TfRestExamples, TfGrpc,
}
