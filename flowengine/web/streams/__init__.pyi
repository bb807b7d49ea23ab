from .stream_routes import make_stream_routes as make_stream_routes
