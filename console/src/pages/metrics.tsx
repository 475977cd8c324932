export const Metrics = () => <h1>Metrics</h1>
