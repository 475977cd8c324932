export const Keep = () => <h1>Keep</h1>
